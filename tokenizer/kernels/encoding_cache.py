"""Encodings that were seen before. Two caches of a fixed size, owned by one thread.

*Short* pre-tokens of up to 15 bytes and 4 ids stand whole in half a cache line, two to a set, the last one
used first. *Long* ones, up to 64 bytes, stand in an arena which is emptied when it is full. What is in a
cache never changes what comes out.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import Bytes, BytesIn, Int32, Int64, UInt32, UInt64Table
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.words import equal_bytes

MAX_CACHED = 64
INLINE_IDS = 4

_NO_ID = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class EncodingCache(NamedTuple):
    """Encodings that were seen before; one thread's own.

    Attributes:
        short: shape (a power of two, 4): two words of bytes, two words of ids.
        long: shape (a power of two, 3): hash, place in the arenas, sizes.
        arena_bytes: bytes of long pre-tokens.
        arena_ids: their ids.
        used: shape (2,), how much of each arena is taken.
    """

    short: UInt64Table
    long: UInt64Table
    arena_bytes: Bytes
    arena_ids: Int32
    used: Int64


def empty_cache(short_bits: int = 16, long_bits: int = 14) -> EncodingCache:
    """Make a cache for `2 ** short_bits` short and `2 ** long_bits` long encodings at most."""
    return EncodingCache(
        np.zeros((1 << short_bits, 4), np.uint64),
        np.zeros((1 << long_bits, 3), np.uint64),
        np.zeros(1 << (long_bits + 5), np.uint8),
        np.zeros(1 << (long_bits + 4), np.int32),
        np.zeros(2, np.int64),
    )


@kernel(inline=True)
def recall_short(short: UInt64Table, slot: int, low: np.uint64, high: np.uint64, out: UInt32, at: int) -> int:
    """Write the ids of a short pre-token that the cache has; return how many, 0 if it has not."""
    if short[slot, 0] != low or short[slot, 1] != high:
        slot += 1
        if short[slot, 0] != low or short[slot, 1] != high:
            return 0
    first, second = short[slot, 2], short[slot, 3]
    out[at] = np.uint32(first & _NO_ID)
    if first >> _HALF == _NO_ID:
        return 1
    out[at + 1] = np.uint32(first >> _HALF)
    if second & _NO_ID == _NO_ID:
        return 2
    out[at + 2] = np.uint32(second & _NO_ID)
    if second >> _HALF == _NO_ID:
        return 3
    out[at + 3] = np.uint32(second >> _HALF)
    return 4


@kernel(inline=True)
def remember_short(
    short: UInt64Table, slot: int, low: np.uint64, high: np.uint64, out: UInt32, at: int, count: int
) -> None:
    """Put a short encoding first in its set; what was first becomes second."""
    for column in range(4):
        short[slot + 1, column] = short[slot, column]
    short[slot, 0], short[slot, 1] = low, high
    for half in range(2):
        word = _NO_ID << _HALF | _NO_ID
        if count > 2 * half:
            word = _NO_ID << _HALF | np.uint64(out[at + 2 * half])
        if count > 2 * half + 1:
            word = np.uint64(out[at + 2 * half + 1]) << _HALF | np.uint64(out[at + 2 * half])
        short[slot, 2 + half] = word


@kernel(inline=True)
def recall_long(
    cache: EncodingCache, digest: np.uint64, data: BytesIn, start: int, length: int, out: UInt32, at: int
) -> int:
    """Write the ids of a long pre-token that the cache has; return how many, 0 if it has not."""
    slot = np.int64(digest >> _HALF) & np.int64(cache.long.shape[0] - 1)
    sizes = np.int64(cache.long[slot, 2])
    if cache.long[slot, 0] != digest or sizes >> 32 != length:
        return 0
    place = np.int64(cache.long[slot, 1])
    if not equal_bytes(data, start, cache.arena_bytes, place >> 32, length):
        return 0
    count = sizes & 0xFFFFFFFF
    for i in range(count):
        out[at + i] = cache.arena_ids[(place & 0xFFFFFFFF) + i]
    return count


@kernel(inline=True)
def remember_long(
    cache: EncodingCache,
    digest: np.uint64,
    data: BytesIn,
    start: int,
    length: int,
    out: UInt32,
    at: int,
    count: int,
) -> None:
    """Put a long encoding into its slot; empty the cache first if an arena is full."""
    if (
        cache.used[0] + length > cache.arena_bytes.shape[0]
        or cache.used[1] + count > cache.arena_ids.shape[0]
    ):
        cache.used[0], cache.used[1] = 0, 0
        for slot in range(cache.long.shape[0]):
            cache.long[slot, 2] = np.uint64(0)
    for i in range(length):
        cache.arena_bytes[cache.used[0] + i] = data[start + i]
    for i in range(count):
        cache.arena_ids[cache.used[1] + i] = out[at + i]
    slot = np.int64(digest >> _HALF) & np.int64(cache.long.shape[0] - 1)
    cache.long[slot, 0] = digest
    cache.long[slot, 1] = np.uint64(cache.used[0] << 32 | cache.used[1])
    cache.long[slot, 2] = np.uint64(length << 32 | count)
    cache.used[0] += length
    cache.used[1] += count
