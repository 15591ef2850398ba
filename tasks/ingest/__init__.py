"""Ingest: turn files into a corpus, which refers to their text and divides it into shards."""
