"""A tokenizer's card: what it is, why it is so, what its audit found, and how to load it elsewhere."""
