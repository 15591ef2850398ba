"""Makes artifacts again from their records alone, here or elsewhere, and compares their digests."""
