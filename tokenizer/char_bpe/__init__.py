"""BPE over characters, in which the joined piece of the greatest score is made first."""
