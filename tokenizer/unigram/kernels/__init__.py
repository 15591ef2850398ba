"""The loops of the unigram family, for numba."""
