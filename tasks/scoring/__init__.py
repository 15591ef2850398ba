"""Scoring: how hard documents are, by the text that they decode to, by a model of the corpus, by a column."""
