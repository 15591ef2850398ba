"""HTML pages without network, and their charts."""
