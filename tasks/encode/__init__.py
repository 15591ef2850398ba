"""Encode: a corpus becomes token ids, shard by shard."""
