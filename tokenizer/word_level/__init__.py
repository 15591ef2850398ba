"""Word-level tokenizers: every pre-token is a token, or it is unknown."""
