"""Export: packed sequences in other formats."""
