"""Kernels of BPE over words."""
