"""Fill in the middle (FIM): rearrange documents so that a model learns to fill gaps."""
