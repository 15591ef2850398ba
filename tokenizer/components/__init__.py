"""The parts of a tokenizer around its model: normalizers, special tokens, post-processors."""
