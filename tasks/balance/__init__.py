"""Balance: how much each source weighs in the training of the tokenizer."""
