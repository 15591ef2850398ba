"""Objects by URL, on any service that fsspec knows, which is imported once a URL is used."""
