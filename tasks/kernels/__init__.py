"""Kernels over documents and tokens, written by the rules of `tokenizer.kernels`."""
