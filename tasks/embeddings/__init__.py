"""Embeddings of a model in safetensors files: rows for a vocabulary that was changed."""
