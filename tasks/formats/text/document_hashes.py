"""A fast 64-bit hash of each document, which depends on its bytes alone.

It decides where shards end and identifies nothing, so it is fast on whole buffers and evenly distributed, but
not cryptographic. A document is read as little-endian words of eight bytes, the last one padded with zeros.
Each word is mixed with its index, and the sum is mixed with the length. Documents over 64 KiB are hashed with
BLAKE2b.
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.text.documents import Bytes, Ints
from tokmill.tasks.kernels.document_hashes import hash_documents

Hashes: TypeAlias = NDArray[np.uint64]

_LONG_BYTES = 64 << 10


def document_hashes(data: Bytes, offsets: Ints) -> Hashes:
    """Return uint64[n], a hash of each document `data[offsets[i]:offsets[i + 1]]`."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_documents(np.ascontiguousarray(data), np.ascontiguousarray(offsets), _LONG_BYTES, hashes)
    for index in np.flatnonzero(np.diff(offsets) > _LONG_BYTES).tolist():
        hashes[index] = _long(data[offsets[index] : offsets[index + 1]])
    return hashes


def unit(hashes: Hashes) -> NDArray[np.float64]:
    """Map hashes evenly to [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _long(document: Bytes) -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(document).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")
