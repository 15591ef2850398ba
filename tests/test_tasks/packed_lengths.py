"""Packs lengths, without tokens, by any strategy."""

import numpy as np

from tokmill.tasks.packing.pieces import Pieces
from tokmill.tasks.packing.strategies import packer


def packed_by(strategy, lengths, capacity, long_documents="split", sizes=None, sources=None):
    """The pieces of all documents, packed in blocks of these sizes (in one, if not given)."""
    of = np.array(np.zeros(len(lengths)) if sources is None else sources, dtype=np.uint16)
    packing, start, parts = packer(strategy, capacity, long_documents), 0, []
    for size in sizes or [len(lengths)]:
        block = np.array(lengths[start : start + size], dtype=np.int64)
        part = packing.pack(block, np.zeros(len(block), dtype=np.uint8), of[start : start + size])
        part.document[:] += start
        parts.append(part)
        start += size
    names = Pieces.__dataclass_fields__
    return Pieces(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
