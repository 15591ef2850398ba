"""Encoding by merges for what is long: O(n log n) where looking through all neighbours would be O(n²).

The symbols are a linked list over byte positions; a binary heap holds every pair that has a merge, as `rank
<< 32 | position`, so the earliest merge comes first and the leftmost place of it before the others. An
entry whose pair has changed since is dropped when it comes up.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int32, UInt32, UInt64
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank


class Scratch(NamedTuple):
    """Working memory for merging what is as long as its arrays, and twice that in the heap.

    Attributes:
        ids: the symbol that begins at a position.
        ranks: the rank of its merge with the next symbol, or NO_MERGE.
        following: where the next symbol begins.
        preceding: where the one before begins, or -1.
        heap: pairs that have a merge.
    """

    ids: Int32
    ranks: UInt32
    following: Int32
    preceding: Int32
    heap: UInt64


def make_scratch(length: int) -> Scratch:
    """Make working memory for pre-tokens of up to `length` bytes."""
    return Scratch(
        np.empty(length, np.int32),
        np.empty(length, np.uint32),
        np.empty(length, np.int32),
        np.empty(length, np.int32),
        np.empty(2 * length, np.uint64),
    )


_POSITION_BITS = np.uint64(32)
_POSITION_MASK = np.uint64(0xFFFFFFFF)


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
    data: BytesIn,
    start: int,
    end: int,
    tables: PairTables,
    scratch: Scratch,
    out: UInt32,
    first: int,
) -> int:
    """Encode the bytes `start:end` into `out` from `first` on; return how many ids they make.

    `scratch` and `out` have room for one id a byte.
    """
    length = end - start
    size = start_symbols(data, start, length, tables, scratch)
    for i in range((size >> 1) - 1, -1, -1):
        sift_down(scratch.heap, size, i, scratch.heap[i])
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        at = np.int64(top & _POSITION_MASK)
        rank = np.uint32(top >> _POSITION_BITS)
        if scratch.ranks[at] == rank:
            size = join(at, rank, length, tables, scratch, size)
    count = 0
    at = np.int64(0)
    while at < length:
        out[first + count] = scratch.ids[at]
        count += 1
        at = np.int64(scratch.following[at])
    return count


@kernel(inline=True)
def start_symbols(data: BytesIn, start: int, length: int, tables: PairTables, scratch: Scratch) -> int:
    """Set up a symbol a byte, and the heap of their pairs, not yet in order; return the heap's size."""
    size = 0
    for i in range(length):
        scratch.ids[i] = tables.byte_ids[data[start + i]]
        scratch.following[i] = i + 1
        scratch.preceding[i] = i - 1
        rank = NO_MERGE
        if i + 1 < length:
            rank = tables.byte_pairs[np.int64(data[start + i]) << 8 | np.int64(data[start + i + 1])]
        scratch.ranks[i] = rank
        if rank != NO_MERGE:
            scratch.heap[size] = np.uint64(rank) << _POSITION_BITS | np.uint64(i)
            size += 1
    return size


@kernel(inline=True)
def join(at: int, rank: np.uint32, length: int, tables: PairTables, scratch: Scratch, size: int) -> int:
    """Join the symbol at a position with the next one, and put its new pairs on the heap; return its size."""
    gone = scratch.following[at]
    after = np.int64(scratch.following[gone])
    before = np.int64(scratch.preceding[at])
    scratch.ids[at] = tables.results[rank]
    scratch.ranks[gone] = NO_MERGE
    scratch.ranks[at] = NO_MERGE
    scratch.following[at] = after
    if after < length:
        scratch.preceding[after] = at
    for left in (before, at):
        right = np.int64(scratch.following[left]) if left >= 0 else length
        if right < length:
            found = find_rank(tables, scratch.ids[left], scratch.ids[right])
            scratch.ranks[left] = found
            if found != NO_MERGE:
                sift_up(scratch.heap, size, np.uint64(found) << _POSITION_BITS | np.uint64(left))
                size += 1
    return size
