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

from tasks.formats.documents import Bytes, Ints, offsets_of

Hashes: TypeAlias = NDArray[np.uint64]

_LONG_BYTES = 64 << 10
# Passes over more than this fall out of the processor's cache.
_SLICE_BYTES = 128 << 10
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)


def document_hashes(data: Bytes, offsets: Ints) -> Hashes:
    """Return uint64[n], a number for each document `data[offsets[i]:offsets[i + 1]]`."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    long = np.flatnonzero(np.diff(offsets) > _LONG_BYTES)
    for index in long.tolist():
        hashes[index] = _long(data[offsets[index] : offsets[index + 1]])
    start = 0
    for stop in (*long.tolist(), len(hashes)):
        _fill(hashes, data, offsets, start, stop)
        start = stop + 1
    return hashes


def unit(hashes: Hashes) -> NDArray[np.float64]:
    """Return numbers that are spread evenly over [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _long(document: Bytes) -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(document).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _fill(hashes: Hashes, data: Bytes, offsets: Ints, start: int, end: int) -> None:
    """Hash the short documents `start:end`, a slice at a time."""
    while start < end:
        after = int(np.searchsorted(offsets, offsets[start] + _SLICE_BYTES, side="right")) - 1
        stop = min(end, max(start + 1, after))
        first = offsets[start]
        hashes[start:stop] = _short(data[first : offsets[stop]], offsets[start : stop + 1] - first)
        start = stop


def _short(data: Bytes, offsets: Ints) -> Hashes:
    lengths = np.diff(offsets)
    num_words = (lengths + 7) // 8
    firsts = offsets_of(num_words)
    numbers = np.arange(firsts[-1]) - np.repeat(firsts[:-1], num_words)
    words = _words(data, np.repeat(offsets[:-1], num_words) + 8 * numbers)
    filled = num_words > 0
    words[firsts[1:][filled] - 1] &= _mask(lengths[filled] - 8 * (num_words[filled] - 1))
    sums = np.zeros(len(words) + 1, dtype=np.uint64)
    np.cumsum(_mixed(words + numbers.astype(np.uint64) * _GOLDEN), out=sums[1:])
    return _mixed((sums[firsts[1:]] - sums[firsts[:-1]]) ^ _mixed(lengths.astype(np.uint64)))


def _words(data: Bytes, positions: Ints) -> Hashes:
    """Return the eight bytes from each position on; zeros come after the last."""
    padded = np.concatenate((data, np.zeros(8, dtype=np.uint8)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 8)
    return np.ascontiguousarray(windows[positions]).view("<u8").reshape(-1).astype(np.uint64)


def _mask(num_bytes: Ints) -> Hashes:
    """Return words that keep the first 1 to 8 bytes."""
    return np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> (np.uint64(64) - num_bytes.astype(np.uint64) * np.uint64(8))


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64 (Steele et al. 2014): every bit of the result depends on all bits of the value."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return mixed ^ (mixed >> np.uint64(31))
