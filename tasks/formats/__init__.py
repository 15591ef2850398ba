"""How data lies on disk: text that is read, and artifacts that are written."""
