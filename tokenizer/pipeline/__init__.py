"""The seam for families: what a model, its encoder, its law and its trainer must offer, and who offers it."""
