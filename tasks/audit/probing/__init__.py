"""The texts of `vocab_probes`, and what is expected of each."""
