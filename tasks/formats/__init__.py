"""File formats: text that is read, and artifacts that are written."""
