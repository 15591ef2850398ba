"""The parts of a tokenizer around its model: normalizers, pre-tokenizers, post-processors, decoders."""
