"""From pre-tokens to ids: caches before merges.

A pre-token is looked up in a cache of encodings, and merged only if it is not there. Two caches, both of a
fixed size and owned by one thread: *short* ones of up to 15 bytes and 4 ids stand whole in half a cache
line, two to a set, the last one used first; *long* ones (up to 255 bytes and ids) stand in an arena which
is emptied when it is full. What is in a cache never changes what comes out.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import Bytes, BytesIn, Int32, Int64, Int64In, UInt32, UInt64Table
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.merges import Scratch, merge_bytes
from tokenizer.kernels.pairs import PairTables
from tokenizer.kernels.words import MAX_SHORT, equal_bytes, hash_long, hash_short, load_short

MAX_CACHED = 64

_NO_ID = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_INLINE_IDS = 4


class WholeTokens(NamedTuple):
    """Tokens that merging does not lead to, and that a pre-token of exactly their bytes becomes all the same.

    Attributes:
        size: how many there are.
        slots: shape (a power of two,), ids by hash, -1 where empty.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
    """

    size: int
    slots: Int32
    token_data: Bytes
    token_offsets: Int64


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
def whole_token(data: BytesIn, start: int, end: int, whole: WholeTokens) -> int:
    """Return the id of the token that has exactly these bytes, or -1."""
    mask = np.int64(whole.slots.shape[0] - 1)
    slot = np.int64(hash_long(data, start, end) >> _HALF) & mask
    while whole.slots[slot] >= 0:
        token = np.int64(whole.slots[slot])
        first, last = whole.token_offsets[token], whole.token_offsets[token + 1]
        if last - first == end - start and equal_bytes(data, start, whole.token_data, first, end - start):
            return token
        slot = (slot + 1) & mask
    return -1


@kernel
def index_whole_tokens(slots: Int32, token_data: BytesIn, token_offsets: Int64In, tokens: Int64In) -> None:
    """Enter tokens, given by id, into the slots of `WholeTokens`."""
    mask = np.int64(slots.shape[0] - 1)
    for i in range(tokens.shape[0]):
        token = tokens[i]
        slot = np.int64(hash_long(token_data, token_offsets[token], token_offsets[token + 1]) >> _HALF) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = token


@kernel(inline=True)
def encode_anew(
    data: BytesIn,
    start: int,
    end: int,
    tables: PairTables,
    whole: WholeTokens,
    scratch: Scratch,
    out: UInt32,
    at: int,
) -> int:
    """Encode one pre-token without a cache; return how many ids were written to `out` from `at` on."""
    if whole.size > 0:
        token = whole_token(data, start, end, whole)
        if token >= 0:
            out[at] = token
            return 1
    return merge_bytes(data, start, end, tables, scratch, out, at)


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


@kernel(inline=True)
def encode_long(
    data: BytesIn,
    start: int,
    end: int,
    tables: PairTables,
    whole: WholeTokens,
    cache: EncodingCache,
    scratch: Scratch,
    out: UInt32,
    at: int,
) -> int:
    """Encode what the short cache has no place for; return how many ids were written."""
    length = end - start
    if length > MAX_CACHED:
        return encode_anew(data, start, end, tables, whole, scratch, out, at)
    digest = hash_long(data, start, end)
    count = recall_long(cache, digest, data, start, length, out, at)
    if count == 0:
        count = encode_anew(data, start, end, tables, whole, scratch, out, at)
        if count > _INLINE_IDS or length > MAX_SHORT:
            remember_long(cache, digest, data, start, length, out, at, count)
    return count


@kernel
def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    tables: PairTables,
    whole: WholeTokens,
    cache: EncodingCache,
    scratch: Scratch,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode the pre-tokens of segments.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_segments + 1,), the pre-tokens of each segment.
        kinds: shape (num_segments,), -1 for text, or the id that stands for the whole segment.
        tables: the merges.
        whole: tokens that are taken whole.
        cache: this thread's.
        scratch: working memory for the longest pre-token.
        out: room for one id a byte; receives the ids.
        out_offsets: shape (num_segments + 1,); receives where each segment's ids begin and end.

    Returns:
        The number of ids.
    """
    position, sets = np.int64(0), np.int64(cache.short.shape[0] - 2)
    out_offsets[0] = position
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            out[position] = kinds[segment]
            position += 1
        else:
            for k in range(offsets[segment], offsets[segment + 1]):
                start, end = starts[k], ends[k]
                if end - start <= MAX_SHORT:
                    low, high = load_short(data, start, end - start)
                    slot = np.int64(hash_short(low, high) >> _HALF) & sets
                    count = recall_short(cache.short, slot, low, high, out, position)
                    if count == 0:
                        count = encode_long(data, start, end, tables, whole, cache, scratch, out, position)
                        if count <= _INLINE_IDS:
                            remember_short(cache.short, slot, low, high, out, position, count)
                else:
                    count = encode_long(data, start, end, tables, whole, cache, scratch, out, position)
                position += count
        out_offsets[segment + 1] = position
    return position
