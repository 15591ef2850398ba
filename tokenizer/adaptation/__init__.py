"""Change the vocabulary of a tokenizer: add terms, take tokens away, and say where each id came from."""
