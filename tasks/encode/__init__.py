"""Encode: turn a corpus into token ids, shard by shard."""
