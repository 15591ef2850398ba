"""Fill in the middle: rearranging documents so that a model learns to fill gaps."""
