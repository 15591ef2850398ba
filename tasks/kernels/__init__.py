"""The hot loops over documents and tokens, by the rules of `tokenizer.kernels`."""
