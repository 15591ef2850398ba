"""Packed sequences: the artifact, its reader, its formats and its masks; see `reader` for the model."""

from tokmill.tasks.formats.packed.reader import PackedReader, Sequence

__all__ = ["PackedReader", "Sequence"]
