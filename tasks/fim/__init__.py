"""Fill in the middle: documents rearranged so that a model learns to fill gaps."""
