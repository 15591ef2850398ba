"""Files that all artifacts use: manifests, arrays, and checks of the numbers in them."""
