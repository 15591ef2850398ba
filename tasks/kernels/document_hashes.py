"""A fast 64-bit hash of each short document, which depends on its bytes alone.

The hash decides where shards end and identifies nothing, so it is fast on whole buffers and evenly
distributed, but not cryptographic. A document is read as little-endian words of eight bytes, the last one
padded with zeros. Each word is mixed with its index, and the sum is mixed with the length.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64In, UInt64
from tokmill.tokenizer.jit.intrinsics import load_u64

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)


@kernel
def hash_documents(data: BytesIn, offsets: Int64In, longest: int, hashes: UInt64) -> None:
    """Hash the documents that have at most `longest` bytes.

    Args:
        data: uint8 [n].
        offsets: int64 [d + 1], in [0, n].
        longest: longer documents are skipped.
        hashes: uint64 [d], written.
    """
    for document in range(offsets.shape[0] - 1):
        start, end = offsets[document], offsets[document + 1]
        if end - start > longest:
            continue
        whole = (end - start) >> 3
        total, number = np.uint64(0), np.uint64(0)
        for word in range(whole):
            total += _mixed(load_u64(data, start + 8 * word) + number)
            number += _GOLDEN
        if start + 8 * whole < end:
            last = np.uint64(0)
            for position in range(start + 8 * whole, end):
                last |= np.uint64(data[position]) << np.uint64(8 * (position - start - 8 * whole))
            total += _mixed(last + number)
        hashes[document] = _mixed(total ^ _mixed(np.uint64(end - start)))


@kernel(inline=True)
def _mixed(value: np.uint64) -> np.uint64:
    """SplitMix64 (Steele et al. 2014): every bit of the result depends on all bits of the value."""
    value += _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))
