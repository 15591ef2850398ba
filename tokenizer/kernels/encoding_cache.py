"""Encodings of short pre-tokens that were seen before: up to 15 bytes and 4 ids, owned by one thread.

An entry is half a cache line: two words of bytes, two words of ids. Two entries make a set; what comes new
goes first, and pushes the first one back. What is in a cache never changes what comes out.
"""

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int64In, UInt32, UInt64Table
from tokenizer.kernels.intrinsics import store_u64
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.words import MAX_SHORT, hash_short, load_short

INLINE_IDS = 4

_HALF = np.uint64(32)
_COUNT_SHIFT = np.uint64(61)
_ID_BITS = np.uint64((1 << 61) - 1)


def empty_cache(bits: int) -> UInt64Table:
    """Make a cache for `2 ** bits` encodings: shape (2 ** bits, 4), each set in one cache line."""
    words = np.empty((4 << bits) + 8, np.uint64)  # not `zeros`, for which numpy asks for no huge pages
    words[:] = 0
    first = -words.ctypes.data % 64 // 8
    return words[first : first + (4 << bits)].reshape(-1, 4)


def copy_cache(cache: UInt64Table) -> UInt64Table:
    """Make another cache that holds the same."""
    copy = empty_cache((cache.shape[0] - 1).bit_length())
    copy[:] = cache
    return copy


@kernel(inline=True)
def place_of(cache: UInt64Table, low: np.uint64, high: np.uint64) -> int:
    """Return the first row of the set that a pre-token belongs to."""
    return np.int64(hash_short(low, high) >> _HALF) & np.int64(cache.shape[0] - 2)


@kernel(inline=True)
def recall(cache: UInt64Table, slot: int, low: np.uint64, high: np.uint64, out: UInt32, at: int) -> int:
    """Write the ids of a pre-token into `out`, which has room for four; return how many, 0 if unknown."""
    row = slot + np.int64((cache[slot + 1, 0] ^ low) | (cache[slot + 1, 1] ^ high) == 0)
    if (cache[row, 0] ^ low) | (cache[row, 1] ^ high) != 0:
        return 0
    last = cache[row, 3]
    store_u64(out, at, cache[row, 2])
    store_u64(out, at + 2, last & _ID_BITS)
    return np.int64(last >> _COUNT_SHIFT)


@kernel(inline=True)
def remember(
    cache: UInt64Table, slot: int, low: np.uint64, high: np.uint64, out: UInt32, at: int, count: int
) -> None:
    """Put up to four ids first in a set; what was first becomes second."""
    for column in range(4):
        cache[slot + 1, column] = cache[slot, column]
    cache[slot, 0], cache[slot, 1] = low, high
    first, second = np.uint64(out[at]), np.uint64(count) << _COUNT_SHIFT
    if count > 1:
        first |= np.uint64(out[at + 1]) << _HALF
    if count > 2:
        second |= np.uint64(out[at + 2])
    if count > 3:
        second |= np.uint64(out[at + 3]) << _HALF
    cache[slot, 2], cache[slot, 3] = first, second


@kernel
def remember_tokens(
    cache: UInt64Table, token_data: BytesIn, token_offsets: Int64In, tokens: Int64In, out: UInt32
) -> None:
    """Enter the tokens of up to 15 bytes, as pre-tokens that are encoded as one id.

    Args:
        cache: changed.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
        tokens: their ids; where there is no room for all, the last ones stay.
        out: shape (1,), working memory.
    """
    for k in range(tokens.shape[0]):
        start, end = token_offsets[tokens[k]], token_offsets[tokens[k] + 1]
        if end - start <= MAX_SHORT:
            low, high = load_short(token_data, start, end - start)
            out[0] = tokens[k]
            remember(cache, place_of(cache, low, high), low, high, out, np.int64(0), np.int64(1))
