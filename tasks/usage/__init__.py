"""Usage: how the vocabulary is used in what was encoded."""
