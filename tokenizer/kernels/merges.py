"""Encoding by merges: the earliest merge that has a place is applied first, at its leftmost place.

The symbols of a pre-token are a linked list over its byte positions. Two ways to find the next merge:
- *short* pre-tokens keep, for every position, the rank of its pair and the position itself in one number,
  and take the least of these numbers, which is done eight at a time. Quadratic, and the fastest by far for
  a few dozen bytes.
- *long* ones keep the same numbers in a heap: O(n log n). A number whose pair has changed since is dropped
  when it comes up.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int32, Int32In, Int64, Int64In, UInt32, UInt64
from tokenizer.kernels.characters import closed_at, tokens_of
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank, insert

MAX_SHORT_BYTES = 256
"""Up to here looking through all pairs is the faster way."""

_SHORT_BITS = np.uint32(10)
_SHORT_MASK = np.uint32(1023)
_NOTHING = NO_MERGE << _SHORT_BITS
_POSITION_BITS = np.uint64(32)
_POSITION_MASK = np.uint64(0xFFFFFFFF)


class Scratch(NamedTuple):
    """Working memory for merging what is as long as its arrays, and twice that in the heap.

    Attributes:
        ids: the symbol that begins at a position.
        ranks: the rank of its merge with the next symbol; for short pre-tokens, rank and position in one.
        following: where the next symbol begins.
        preceding: where the one before begins, or -1.
        heap: pairs that have a merge, as `rank << 32 | position`.
    """

    ids: Int32
    ranks: UInt32
    following: Int32
    preceding: Int32
    heap: UInt64


def make_scratch(length: int) -> Scratch:
    """Make working memory for pre-tokens of up to `length` bytes, and for MAX_SHORT_BYTES at least."""
    length = max(length, MAX_SHORT_BYTES) + 8
    return Scratch(
        np.empty(length, np.int32),
        np.empty(length, np.uint32),
        np.empty(length, np.int32),
        np.empty(length, np.int32),
        np.empty(2 * length, np.uint64),
    )


@kernel(inline=True)
def start_symbols(data: BytesIn, start: int, length: int, tables: PairTables, scratch: Scratch) -> None:
    """Set up symbols for bytes and closed characters, and the ranks of their pairs."""
    at, before, end = np.int64(0), np.int64(-1), start + length
    while at < length:
        byte = np.int64(data[start + at])
        row = np.int64(-1) if byte < 0x80 else closed_at(data, start + at, start, end, tables)
        if row >= 0:
            size = np.int64(2 if byte < 0xE0 else 3)
            symbol, first_size, second = tokens_of(row, tables)
            if second >= 0:
                add_symbol(at, first_size, symbol, before, tables, scratch)
                before, at = at, at + first_size
                symbol, size = second, size - first_size
        else:
            symbol, size = np.int64(tables.byte_ids[byte]), np.int64(1)
        add_symbol(at, size, symbol, before, tables, scratch)
        before, at = at, at + size


@kernel(inline=True)
def add_symbol(at: int, size: int, symbol: int, before: int, tables: PairTables, scratch: Scratch) -> None:
    """Add a symbol behind another one, and find the rank of the pair that they make."""
    scratch.ids[at] = symbol
    scratch.preceding[at], scratch.following[at] = before, at + size
    for i in range(at, at + size):
        scratch.ranks[i] = NO_MERGE
    if before >= 0:
        scratch.ranks[before] = find_rank(tables, scratch.ids[before], symbol)


@kernel(inline=True)
def write_symbols(length: int, scratch: Scratch, out: UInt32, first: int) -> int:
    """Write the symbols into `out` from `first` on; return how many there are."""
    count = 0
    at = np.int64(0)
    while at < length:
        out[first + count] = scratch.ids[at]
        count += 1
        at = np.int64(scratch.following[at])
    return count


@kernel(inline=True)
def join(at: int, rank: int, length: int, tables: PairTables, scratch: Scratch) -> tuple[int, int]:
    """Join the symbol at a position with the next one.

    Returns:
        The positions whose pairs are new: the one before, or -1, and this one, or -1 if nothing follows.
    """
    gone = scratch.following[at]
    after = np.int64(scratch.following[gone])
    scratch.ids[at] = tables.results[rank]
    scratch.following[at] = after
    if after < length:
        scratch.preceding[after] = at
        return np.int64(scratch.preceding[at]), at
    return np.int64(scratch.preceding[at]), -1


@kernel(inline=True)
def rank_at(at: int, tables: PairTables, scratch: Scratch) -> np.uint32:
    """Return the rank of the merge of the symbol at a position with the next one, or NO_MERGE."""
    return find_rank(tables, scratch.ids[at], scratch.ids[scratch.following[at]])


@kernel(inline=True)
def merge_short(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode MAX_SHORT_BYTES or fewer into `out` from `first` on; return how many ids they make."""
    length = end - start
    start_symbols(data, start, length, tables, scratch)
    padded = (length + 7) & ~7
    for i in range(length):
        scratch.ranks[i] = scratch.ranks[i] << _SHORT_BITS | np.uint32(i)
    for i in range(length, padded):
        scratch.ranks[i] = _NOTHING
    while True:
        least = scratch.ranks[0]
        for i in range(padded):
            least = min(least, scratch.ranks[i])
        if least >= _NOTHING:
            break
        at = np.int64(least & _SHORT_MASK)
        scratch.ranks[scratch.following[at]] = _NOTHING
        before, this = join(at, np.int64(least >> _SHORT_BITS), length, tables, scratch)
        scratch.ranks[at] = _NOTHING
        if this >= 0:
            scratch.ranks[this] = rank_at(this, tables, scratch) << _SHORT_BITS | np.uint32(this)
        if before >= 0:
            scratch.ranks[before] = rank_at(before, tables, scratch) << _SHORT_BITS | np.uint32(before)
    return write_symbols(length, scratch, out, first)


@kernel(inline=True)
def sift_down(heap: UInt64, size: int, hole: int, item: np.uint64) -> None:
    """Put an item where it belongs at or below a hole."""
    child = 2 * hole + 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if item <= heap[child]:
            break
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    heap[hole] = item


@kernel(inline=True)
def sift_up(heap: UInt64, hole: int, item: np.uint64) -> None:
    """Put an item where it belongs at or above a hole."""
    while hole > 0 and item < heap[(hole - 1) >> 1]:
        heap[hole] = heap[(hole - 1) >> 1]
        hole = (hole - 1) >> 1
    heap[hole] = item


@kernel(inline=True)
def merge_long(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode bytes of any number into `out` from `first` on; return how many ids they make."""
    length, size = end - start, np.int64(0)
    start_symbols(data, start, length, tables, scratch)
    for i in range(length):
        if scratch.ranks[i] != NO_MERGE:
            sift_up(scratch.heap, size, np.uint64(scratch.ranks[i]) << _POSITION_BITS | np.uint64(i))
            size += 1
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        at = np.int64(top & _POSITION_MASK)
        if scratch.ranks[at] != np.uint32(top >> _POSITION_BITS):
            continue
        scratch.ranks[scratch.following[at]] = NO_MERGE
        before, this = join(at, np.int64(top >> _POSITION_BITS), length, tables, scratch)
        scratch.ranks[at] = NO_MERGE
        for changed in (before, this):
            if changed >= 0:
                rank = rank_at(changed, tables, scratch)
                scratch.ranks[changed] = rank
                if rank != NO_MERGE:
                    sift_up(scratch.heap, size, np.uint64(rank) << _POSITION_BITS | np.uint64(changed))
                    size += 1
    return write_symbols(length, scratch, out, first)


@kernel(inline=True)
def merge_bytes(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode bytes into `out` from `first` on, in the faster way; return how many ids they make."""
    if end - start <= MAX_SHORT_BYTES:
        return merge_short(data, start, end, tables, scratch, out, first)
    return merge_long(data, start, end, tables, scratch, out, first)


@kernel
def derive_merges(
    tables: PairTables,
    token_data: BytesIn,
    token_offsets: Int64In,
    by_length: Int64In,
    rank_of: Int32In,
    parents: Int64,
    scratch: Scratch,
    out: UInt32,
) -> None:
    """Find the merge that makes each token of a vocabulary that only says which byte strings are tokens.

    A token's parents are the two tokens that its own bytes end in when they are merged by all shorter
    tokens, lowest rank first: the bytes inside of a token are merged in the same order wherever it stands,
    so no other pair can ever make it. A token whose bytes end in more than two can not be reached.

    Args:
        tables: with the bytes' ids, and without merges; filled.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
        by_length: ids of the tokens of two bytes or more, shortest first.
        rank_of: shape (num_ids,), each token's priority.
        parents: shape (num_ids,); receives `left << 32 | right`, or -1.
        scratch: working memory for the longest token.
        out: the same.
    """
    for k in range(by_length.shape[0]):
        token = by_length[k]
        start, end = token_offsets[token], token_offsets[token + 1]
        parents[token] = -1
        if merge_long(token_data, start, end, tables, scratch, out, np.int64(0)) == 2:
            parents[token] = np.int64(out[0]) << 32 | np.int64(out[1])
            insert(tables, out[0], out[1], rank_of[token], token)
