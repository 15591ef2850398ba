"""Encode a few bytes by merges, as `kernels.merges`, but without a heap, and hardly waiting for memory.

Rank and position of every pair are packed into one number; the least number is found by a full scan.
The starts of symbols are the bits of one number, and so are their ends. A merge makes two new pairs, whose
places in the pair table are prefetched together, before either is read.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, UInt32
from tokmill.tokenizer.jit.intrinsics import count_leading_zeros, count_trailing_zeros, prefetch
from tokmill.tokenizer.kernels.merges import Scratch
from tokmill.tokenizer.kernels.pairs import (
    NO_MERGE,
    PairTables,
    fetch_pair,
    look_up_rank,
    may_merge,
    pair_key,
)

MAX_SHORT_MERGE_BYTES = 16
"""Up to this length a scan of all pairs beats a heap and, without wide characters, `greedy`."""

_FEW_BITS = np.uint32(4)
_FEW_MASK = np.uint32(15)
_NOTHING = NO_MERGE << _FEW_BITS
_ONE, _TWO, _LAST_BIT = np.uint64(1), np.uint64(2), np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_BYTE_BITS = _EIGHT = np.uint64(8)


@kernel(inline=True)
def write_few(symbols: np.uint64, length: np.uint64, ids: Int32, out: UInt32, first: int) -> int:
    """Write the symbols that begin at the set bits of a number, except bit `length`; return their number."""
    place, at = np.uint64(first), np.uint64(0)
    while at < length:
        out[place] = ids[at]
        place += _ONE
        symbols &= symbols - _ONE
        at = count_trailing_zeros(symbols)
    return np.int64(place) - first


@kernel(inline=True)
def least_rank(ranks: UInt32, length: np.uint64) -> np.uint32:
    """Return the least rank, by a tree of comparisons, so that few of them wait for another."""
    first, second = min(ranks[0], ranks[1]), min(ranks[2], ranks[3])
    third, fourth = min(ranks[4], ranks[5]), min(ranks[6], ranks[7])
    first, second = min(first, second), min(third, fourth)
    if length > _EIGHT:
        third, fourth = min(ranks[8], ranks[9]), min(ranks[10], ranks[11])
        first, second = min(first, third), min(second, fourth)
        third, fourth = min(ranks[12], ranks[13]), min(ranks[14], ranks[15])
        first, second = min(first, third), min(second, fourth)
    return min(first, second)


@kernel(inline=True)
def start_few(data: BytesIn, start: int, length: int, tables: PairTables, ids: Int32, ranks: UInt32) -> None:
    """Set up one symbol per byte, and rank and position of every pair in one number."""
    for i in range(MAX_SHORT_MERGE_BYTES):
        ranks[i] = _NOTHING
    text = np.uint64(start)
    byte = np.uint64(data[text])
    ids[0] = tables.byte_ids[byte]
    for i in range(1, length):
        following = np.uint64(data[text + np.uint64(i)])
        ids[i] = tables.byte_ids[following]
        ranks[i - 1] = tables.byte_pairs[byte << _BYTE_BITS | following] << _FEW_BITS | np.uint32(i - 1)
        byte = following


@kernel(inline=True)
def note_rank(at: np.uint64, key: np.uint64, tables: PairTables, ranks: UInt32) -> None:
    """Store the rank of the pair at a position, and prefetch the result of its merge."""
    rank = look_up_rank(tables, key)
    prefetch(tables.results, np.int64(rank))
    ranks[at] = rank << _FEW_BITS | np.uint32(at)


@kernel(inline=True)
def merge_short(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode up to MAX_SHORT_MERGE_BYTES into `out` from `first` on; return the number of ids."""
    ids, ranks, length = scratch.ids, scratch.ranks, np.uint64(end - start)
    start_few(data, start, end - start, tables, ids, ranks)
    symbols = (_TWO << length) - _ONE
    while True:
        least = least_rank(ranks, length)
        if least >= _NOTHING:
            return write_few(symbols, length, ids, out, first)
        at = np.uint64(least & _FEW_MASK)
        joined = tables.results[np.uint64(least >> _FEW_BITS)]
        ids[at] = joined
        behind = symbols & (_ALL << at << _ONE)
        gone = count_trailing_zeros(behind)
        after = count_trailing_zeros(behind & (behind - _ONE))
        symbols ^= _ONE << gone
        before = _LAST_BIT - count_leading_zeros(symbols & ((_ONE << at) - _ONE) | _ONE)
        to_next, to_this = pair_key(joined, ids[after]), pair_key(ids[before], joined)
        next_known = after < length and may_merge(tables, to_next)
        this_known = at > 0 and may_merge(tables, to_this)
        fetch_pair(tables, to_next, next_known)
        fetch_pair(tables, to_this, this_known)
        ranks[gone], ranks[at] = _NOTHING, _NOTHING
        ranks[before] = _NOTHING
        if next_known:
            note_rank(at, to_next, tables, ranks)
        if this_known:
            note_rank(before, to_this, tables, ranks)
