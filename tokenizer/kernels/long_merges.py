"""Encoding by merges for what is long: O(n log n) where looking through all neighbours would be O(n²).

The symbols are a linked list over byte positions; a binary heap holds every pair that has a merge, as
`rank << 32 | position`, so the earliest merge comes first and the leftmost place of it before the others. An entry
whose pair has changed since is dropped when it comes up.
"""

import numpy as np

from tokenizer.kernels.arrays import BytesIn, UInt32, UInt64
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank

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
def merge_long(data: BytesIn, start: int, end: int, tables: PairTables, out: UInt32, first: int) -> int:
    """Encode the bytes `start:end` into `out` from `first` on, where there is room; return how many ids they make."""
    length = end - start
    ids = np.empty(length, np.int32)
    following = np.empty(length, np.int32)
    preceding = np.empty(length, np.int32)
    ranks = np.empty(length, np.uint32)
    heap = np.empty(2 * length, np.uint64)
    size = 0
    for i in range(length):
        ids[i] = tables.byte_ids[data[start + i]]
        following[i] = i + 1
        preceding[i] = i - 1
        ranks[i] = NO_MERGE
        if i + 1 < length:
            ranks[i] = tables.byte_pairs[np.int64(data[start + i]) << 8 | np.int64(data[start + i + 1])]
        if ranks[i] != NO_MERGE:
            heap[size] = np.uint64(ranks[i]) << _POSITION_BITS | np.uint64(i)
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        sift_down(heap, size, i, heap[i])
    while size > 0:
        top = heap[0]
        size -= 1
        sift_down(heap, size, 0, heap[size])
        at = np.int64(top & _POSITION_MASK)
        rank = np.uint32(top >> _POSITION_BITS)
        if ranks[at] != rank:
            continue
        gone = following[at]
        ids[at] = tables.results[rank]
        ranks[gone] = NO_MERGE
        after = following[gone]
        following[at] = after
        ranks[at] = NO_MERGE
        if after < length:
            preceding[after] = at
            ranks[at] = find_rank(tables, ids[at], ids[after])
            if ranks[at] != NO_MERGE:
                sift_up(heap, size, np.uint64(ranks[at]) << _POSITION_BITS | np.uint64(at))
                size += 1
        before = preceding[at]
        if before >= 0:
            ranks[before] = find_rank(tables, ids[before], ids[at])
            if ranks[before] != NO_MERGE:
                sift_up(heap, size, np.uint64(ranks[before]) << _POSITION_BITS | np.uint64(before))
                size += 1
    count = 0
    at = np.int64(0)
    while at < length:
        out[first + count] = ids[at]
        count += 1
        at = np.int64(following[at])
    return count
