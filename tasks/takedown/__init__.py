"""Takedown: packed artifacts and mixtures without some documents."""
