"""Unigram language model tokenizers (Kudo 2018): of all ways to cut a pre-token, the most probable one."""
