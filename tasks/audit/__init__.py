"""Audit: what a tokenizer makes of the text, for each source."""
