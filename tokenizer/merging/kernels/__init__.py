"""The loops of training by merges."""
