"""Mixing: plan, on lengths only, the tokens of each source, its documents and their order."""
