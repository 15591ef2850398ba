"""The kernels of longest match."""
