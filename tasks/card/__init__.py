"""Card: the data card of a packed artifact."""
