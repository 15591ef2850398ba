"""Score: measure the difficulty of each document, for curricula."""
