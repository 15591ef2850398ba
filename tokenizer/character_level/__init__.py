"""Character-level tokenizers: every character is a token, or it is unknown."""
