"""The files that can hold a WordPiece tokenizer."""
