"""Score: how difficult each document is, for curricula."""
