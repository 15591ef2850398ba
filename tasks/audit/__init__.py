"""Audit: judge a tokenizer before anything is encoded with it."""
