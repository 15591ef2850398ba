"""The kernels of WordPiece."""
