"""Holdout: documents that are kept out of training for validation, chosen by their content."""
