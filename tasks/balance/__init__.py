"""Balance: the weight of each source in the training of the tokenizer."""
