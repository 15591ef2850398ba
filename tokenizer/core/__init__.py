"""The base of all other parts of the tokenizer: errors, buffers of text, counts, and stopping."""
