"""Training by joining pairs of pieces, for families whose pieces are made of characters."""
