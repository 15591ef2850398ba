"""Training on whole sentences as SentencePiece does, for the families that can: see docs/adr/0017."""
