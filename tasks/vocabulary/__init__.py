"""Changed vocabularies: tokenizers that are made from others by adding terms or taking tokens away."""
