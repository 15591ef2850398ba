"""WordPiece: words are cut into the longest pieces of a vocabulary, greedily from the left."""
