"""Encodings of pre-tokens that were seen before, owned by one thread, in two tables.

*Short* pre-tokens, up to 15 bytes, are half a cache line: two words of bytes, two words for up to 4 ids; two
make a set, and a new entry goes first. *Middle* ones, up to 31 bytes, are a cache line, with up to 8 ids. If
there are more ids, the entry has their place in an array *aside*; when that is full, it is written from the
front again, and earlier references become invalid. A block of pre-tokens has its places fetched ahead.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32, UInt64
from tokmill.tokenizer.jit.intrinsics import prefetch, store_u64
from tokmill.tokenizer.kernels.words import (
    MAX_MIDDLE,
    MAX_SHORT,
    hash_middle,
    hash_short,
    load_middle,
    load_short,
)

_ZERO, _ONE, _TWO, _THREE, _FOUR = (np.uint64(number) for number in range(5))
_TO_PLACE = np.uint64(29)
_COUNT_SHIFT = np.uint64(60)
_ID_BITS = np.uint64((1 << 60) - 1)
_HALF = np.uint64(32)
_HALF_BITS = np.uint64((1 << 32) - 1)
_ASIDE = np.int64(15)
"""In place of the number of ids: they are aside. The entry's last two words have their place and number."""


BLOCK = 256
"""Pre-tokens whose places are fetched ahead."""

LONG, MIDDLE = np.int64(-1), np.int64(-2)
"""For a place: there is none; and from here downwards, one in the cache of middle pre-tokens."""


class EncodingCache(NamedTuple):
    """Encodings that were seen before, of one thread. A place is the index of an entry, or of a set of them.

    Attributes:
        short: shape (4 * a power of two,): each two words of bytes and two of ids, the number of ids in the
            last one's top.
        middle: shape (8 * a power of two,): each four words of bytes and four of ids, the same.
        aside: the ids of longer encodings, one after the other.
        filled: shape (2,), the number of ids aside, and the number of this filling.
    """

    short: UInt64
    middle: UInt64
    aside: UInt32
    filled: UInt64


class Fetched(NamedTuple):
    """Where the pre-tokens of a block are in the cache; shape (BLOCK,) each.

    Attributes:
        places: the place of a short pre-token; LONG for a long one; MIDDLE minus the place of a middle one.
        lows: the first words of the short ones.
        highs: the second.
    """

    places: Int64
    lows: UInt64
    highs: UInt64


def empty_block() -> Fetched:
    """Make room for a block."""
    return Fetched(np.empty(BLOCK, np.int64), *np.empty((2, BLOCK), np.uint64))


def empty_cache(short_bits: int, middle_bits: int, aside_bits: int) -> EncodingCache:
    """Make a cache: powers of two of encodings, given by their exponents, and of ids aside, at least 32."""
    short, middle = _in_cache_lines(4 << short_bits), _in_cache_lines(8 << middle_bits)
    short[:], middle[:] = 0, 0
    return EncodingCache(short, middle, np.zeros(1 << aside_bits, np.uint32), np.zeros(2, np.uint64))


def copy_cache(cache: EncodingCache) -> EncodingCache:
    """Copy a cache, without the ids aside, whose references are invalid in the copy."""
    copy = EncodingCache(
        _in_cache_lines(cache.short.shape[0]),
        _in_cache_lines(cache.middle.shape[0]),
        np.zeros_like(cache.aside),
        np.array([0, cache.filled[1] + _ONE], np.uint64),
    )
    copy.short[:], copy.middle[:] = cache.short, cache.middle
    return copy


def _in_cache_lines(size: int) -> UInt64:
    """Make an array that begins at a cache line."""
    words = np.empty(size + 8, np.uint64)  # not `zeros`, for which numpy asks for no huge pages
    first = -words.ctypes.data % 64 // 8
    return words[first : first + size]


@kernel(inline=True)
def short_place(cache: EncodingCache, low: np.uint64, high: np.uint64) -> int:
    """Return the place of the set that a short pre-token belongs to."""
    return np.int64(hash_short(low, high) >> _TO_PLACE) & np.int64(cache.short.shape[0] - 8)


@kernel(inline=True)
def middle_place(cache: EncodingCache, data: BytesIn, start: int, length: int) -> int:
    """Return the place of a middle pre-token."""
    first, second, third, last = load_middle(data, start, length)
    return np.int64(hash_middle(first, second, third, last) >> _TO_PLACE) & np.int64(
        cache.middle.shape[0] - 8
    )


@kernel(inline=True)
def fetch_ahead(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    first: int,
    after: int,
    cache: EncodingCache,
    fetched: Fetched,
) -> int:
    """Find and prefetch the places of pre-tokens in the cache; return the length of the longest."""
    longest = np.int64(0)
    for k in range(first, after):
        start = starts[np.uint64(k)]
        length = ends[np.uint64(k)] - start
        longest = max(longest, length)
        low, high, place = np.uint64(0), np.uint64(0), LONG
        if length <= MAX_SHORT:
            low, high = load_short(data, start, length)
            place = short_place(cache, low, high)
            prefetch(cache.short, place)
        elif length <= MAX_MIDDLE:
            place = middle_place(cache, data, start, length)
            prefetch(cache.middle, place)
            place = MIDDLE - place
        i = np.uint64(k - first)
        fetched.places[i], fetched.lows[i], fetched.highs[i] = place, low, high
    return longest


@kernel(inline=True)
def recall_aside(cache: EncodingCache, where: np.uint64, count: int, out: UInt32, at: int) -> int:
    """Write ids from aside into `out`; return their number, 0 if they have been overwritten."""
    if where >> _HALF != cache.filled[1]:
        return np.int64(0)
    first = np.int64(where & _HALF_BITS)
    for i in range(count):
        out[at + i] = cache.aside[first + i]
    return count


@kernel(inline=True)
def put_aside(cache: EncodingCache, out: UInt32, at: int, count: int) -> np.uint64:
    """Put ids aside; return their place and the number of the filling."""
    first = np.int64(cache.filled[0])
    if first + count > cache.aside.shape[0]:
        first = np.int64(0)
        cache.filled[1] += _ONE
    for i in range(count):
        cache.aside[first + i] = out[at + i]
    cache.filled[0] = np.uint64(first + count)
    return np.uint64(first) | cache.filled[1] << _HALF


@kernel(inline=True)
def recall_short(
    cache: EncodingCache, place: int, low: np.uint64, high: np.uint64, out: UInt32, at: int
) -> int:
    """Write the ids of a short pre-token into `out`, with room for four; return how many, 0 if unknown."""
    short, second = cache.short, np.uint64(place) + _FOUR
    in_second = (short[second] ^ low) | (short[second + _ONE] ^ high) == 0
    entry = np.uint64(place) + (_FOUR if in_second else _ZERO)
    if (short[entry] ^ low) | (short[entry + _ONE] ^ high) != 0:
        return np.int64(0)
    last = short[entry + _THREE]
    count = np.int64(last >> _COUNT_SHIFT)
    if count == _ASIDE:
        return recall_aside(cache, short[entry + _TWO], np.int64(last & _ID_BITS), out, at)
    store_u64(out, at, short[entry + _TWO])
    store_u64(out, at + 2, last & _ID_BITS)
    return count


@kernel(inline=True)
def recall_middle(
    cache: EncodingCache, place: int, data: BytesIn, start: int, length: int, out: UInt32, at: int
) -> int:
    """Write the ids of a middle pre-token into `out`, with room for eight; return how many, 0 if unknown."""
    middle = cache.middle
    first, second, third, last = load_middle(data, start, length)
    different = (middle[place] ^ first) | (middle[place + 1] ^ second)
    if different | (middle[place + 2] ^ third) | (middle[place + 3] ^ last) != 0:
        return np.int64(0)
    count = np.int64(middle[place + 7] >> _COUNT_SHIFT)
    if count == _ASIDE:
        return recall_aside(cache, middle[place + 6], np.int64(middle[place + 7] & _ID_BITS), out, at)
    for pair in range(3):
        store_u64(out, at + 2 * pair, middle[place + 4 + pair])
    store_u64(out, at + 6, middle[place + 7] & _ID_BITS)
    return count


@kernel(inline=True)
def write_ids(
    cache: EncodingCache, table: UInt64, first: int, after: int, out: UInt32, at: int, count: int
) -> None:
    """Put ids into an entry's words, two per word, and their number into the last one's top; or aside."""
    if count > 2 * (after - first):
        table[after - 2] = put_aside(cache, out, at, count)
        table[after - 1] = np.uint64(count) | np.uint64(_ASIDE) << _COUNT_SHIFT
        return
    for k in range(first, after):
        table[k] = 0
    for i in range(count):
        table[first + (i >> 1)] |= np.uint64(out[at + i]) << np.uint64(32 * (i & 1))
    table[after - 1] |= np.uint64(count) << _COUNT_SHIFT


@kernel(inline=True)
def remember_short(
    cache: EncodingCache, place: int, low: np.uint64, high: np.uint64, out: UInt32, at: int, count: int
) -> None:
    """Put the ids of a short pre-token first in a set; the first entry becomes the second."""
    for k in range(place, place + 4):
        cache.short[k + 4] = cache.short[k]
    cache.short[place], cache.short[place + 1] = low, high
    write_ids(cache, cache.short, place + 2, place + 4, out, at, count)


@kernel(inline=True)
def remember_middle(
    cache: EncodingCache, place: int, data: BytesIn, start: int, length: int, out: UInt32, at: int, count: int
) -> None:
    """Put the ids of a middle pre-token into their place."""
    first, second, third, last = load_middle(data, start, length)
    cache.middle[place], cache.middle[place + 1] = first, second
    cache.middle[place + 2], cache.middle[place + 3] = third, last
    write_ids(cache, cache.middle, place + 4, place + 8, out, at, count)


@kernel(inline=True)
def recall(
    data: BytesIn,
    start: int,
    length: int,
    row: int,
    cache: EncodingCache,
    fetched: Fetched,
    out: UInt32,
    at: int,
) -> int:
    """Write the ids of a pre-token that is in the cache; return their number, 0 if it is not."""
    place = fetched.places[np.uint64(row)]
    if place >= 0:
        low, high = fetched.lows[np.uint64(row)], fetched.highs[np.uint64(row)]
        return recall_short(cache, place, low, high, out, at)
    if place <= MIDDLE:
        return recall_middle(cache, MIDDLE - place, data, start, length, out, at)
    return 0


@kernel(inline=True)
def remember(
    data: BytesIn,
    start: int,
    length: int,
    row: int,
    cache: EncodingCache,
    fetched: Fetched,
    out: UInt32,
    at: int,
    count: int,
) -> None:
    """Put the ids of a pre-token into the cache, if it has a place there."""
    place = fetched.places[row]
    if place >= 0:
        low, high = fetched.lows[row], fetched.highs[row]
        remember_short(cache, place, low, high, out, at, count)
    elif place <= MIDDLE:
        remember_middle(cache, MIDDLE - place, data, start, length, out, at, count)


@kernel
def remember_tokens(
    cache: EncodingCache, token_data: BytesIn, token_offsets: Int64In, tokens: Int64In, out: UInt32
) -> None:
    """Enter the tokens of up to 15 bytes, as pre-tokens that are encoded as one id."""
    for k in range(tokens.shape[0]):
        start, end = token_offsets[tokens[k]], token_offsets[tokens[k] + 1]
        if end - start <= MAX_SHORT:
            low, high = load_short(token_data, start, end - start)
            out[0] = tokens[k]
            remember_short(cache, short_place(cache, low, high), low, high, out, np.int64(0), np.int64(1))
