"""The hot loops that all families share: splitting, counting, sorting, decoding. See `tokenizer.jit`."""
