"""Takedown: remove documents from packed artifacts and mixtures."""
