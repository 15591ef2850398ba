"""Byte-level BPE: encoder, trainer and their kernels."""
