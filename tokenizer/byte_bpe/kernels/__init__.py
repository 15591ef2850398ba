"""The hot loops of byte-level BPE."""
