"""One slow, obvious model for each family, to read first and to hold the fast one equal to."""
