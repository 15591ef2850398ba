"""Train a tokenizer on balanced counts, or adopt one that exists."""
