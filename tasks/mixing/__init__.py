"""Mixing, planned on lengths only: how many tokens of each source, which documents, in which order."""
