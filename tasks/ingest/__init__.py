"""Ingest: files become a corpus, which points at their text and fixes its shards."""
