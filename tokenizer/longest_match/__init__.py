"""Longest match: at each place of a text the longest token that it goes on with, as in RWKV's vocabulary."""
