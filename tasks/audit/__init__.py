"""Audit: measure how a tokenizer encodes the text of each source."""
