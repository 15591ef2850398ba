"""Packing: put documents into sequences of one length, planned on lengths and written shard by shard."""
