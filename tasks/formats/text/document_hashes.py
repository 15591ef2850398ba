"""A quick 64-bit number for each of many documents, over all of its bytes and nothing around it.

It decides where shards end and identifies nothing, so it is made to be fast on whole buffers and evenly
spread, and not to withstand anyone. A document is taken as little-endian words of eight bytes, the last one
filled up with zeros. Each word is mixed together with its number in the document, and the sum is mixed with
the length. Documents over 64 KiB go through BLAKE2b, one by one.
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
    """Return uint64[n], a number for each document `data[offsets[i]:offsets[i + 1]]`."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_documents(np.ascontiguousarray(data), np.ascontiguousarray(offsets), _LONG_BYTES, hashes)
    for index in np.flatnonzero(np.diff(offsets) > _LONG_BYTES).tolist():
        hashes[index] = _long(data[offsets[index] : offsets[index + 1]])
    return hashes


def unit(hashes: Hashes) -> NDArray[np.float64]:
    """Return numbers that are spread evenly over [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _long(document: Bytes) -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(document).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")
