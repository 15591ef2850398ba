"""From byte strings to ids, and from ids to bytes, in batches.

The vocabulary lies in the tables of `kernels.counting`, with id + 1 in the place of a count. Strings are
taken in blocks: the memory that all of them need is prefetched, then they are looked up.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt32, UInt32In
from tokmill.tokenizer.kernels.counting import (
    LOWER,
    CountTables,
    hash_block,
    place_of_short,
    slot_of_long,
)
from tokmill.tokenizer.kernels.words import MAX_SHORT


@kernel
def add_up(ids: UInt32In, ends: Int64In, lengths: Int64In, sums: Int64) -> None:
    """Add up the lengths of each segment's tokens."""
    for segment in range(ends.shape[0] - 1):
        total = np.int64(0)
        for i in range(ends[segment], ends[segment + 1]):
            total += lengths[np.uint64(ids[np.uint64(i)])]
        sums[segment] = total


@kernel
def gather_tokens(ids: Int64In, token_data: BytesIn, token_offsets: Int64In, out: Bytes) -> None:
    """Write the bytes of each token, one after the other, into `out`, which has exactly their size."""
    position = 0
    for i in range(ids.shape[0]):
        for k in range(token_offsets[ids[i]], token_offsets[ids[i] + 1]):
            out[position] = token_data[k]
            position += 1


@kernel
def locate_tokens(
    ids: Int64In, token_offsets: Int64In, bounds: Int64In, kinds: Int64In, starts: Int64, ends: Int64
) -> int:
    """Write where each token lies in the text that tokens tile, segment by segment; return their number."""
    token = 0
    for segment in range(kinds.shape[0]):
        position, end = bounds[segment], bounds[segment + 1]
        while position < end:
            starts[token] = position
            if kinds[segment] >= 0:
                position = end
            else:
                position += token_offsets[ids[token] + 1] - token_offsets[ids[token]]
            ends[token] = position
            token += 1
    return token


_BLOCK = 32


@kernel
def look_up(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    tables: CountTables,
    unknown: int,
    ids: UInt32,
    id_ends: Int64,
    unknown_bytes: Int64,
) -> int:
    """Write the id of each string of some segments; return how many ids were written."""
    number = np.int64(0)
    id_ends[0] = 0
    for segment in range(kinds.shape[0]):
        lost, first, last = np.int64(0), bounds[segment], bounds[segment + 1]
        if kinds[segment] >= 0:
            ids[number] = np.uint32(kinds[segment])
            number += 1
            if kinds[segment] == unknown and first < last:
                lost = ends[last - 1] - starts[first]
            first = last
        for begin in range(first, last, _BLOCK):
            end = min(begin + _BLOCK, last)
            hash_block(data, starts, ends, begin, end, tables)
            for k in range(begin, end):
                token = find_string(data, starts[k], ends[k] - starts[k], k - begin, tables)
                if token < 0:
                    token = unknown
                    lost += ends[k] - starts[k]
                ids[number] = np.uint32(token)
                number += 1
        unknown_bytes[segment] = lost
        id_ends[segment + 1] = number
    return number


@kernel(inline=True)
def find_string(data: BytesIn, start: int, length: int, row: int, tables: CountTables) -> int:
    """Return the id of a string that `hash_block` has hashed into a row, or -1."""
    place = np.uint64(row)
    low, high, digest = tables.block[place, 0], tables.block[place, 1], tables.block[place, 2]
    if length <= MAX_SHORT:
        return np.int64(tables.short[place_of_short(low, high, digest, tables.short) + np.uint64(2)]) - 1
    slot = slot_of_long(data, start, length, digest, tables)
    if tables.slots[slot] == 0:
        return -1
    return np.int64(tables.entries[np.int64(tables.slots[slot] & LOWER) - 1, 2]) - 1
