"""Kernels of BPE over characters."""
