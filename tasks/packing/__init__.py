"""Packing: documents into sequences of one length, planned on lengths and written shard by shard."""
