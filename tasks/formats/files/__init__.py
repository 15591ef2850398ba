"""What every artifact's files have in common: manifests, arrays, and checks of the numbers in them."""
