"""Encoding by merges, as the definition has it: the earliest merge that has a place, at its leftmost place.

The symbols of a pre-token are a linked list over its byte positions. Ranks and positions of their pairs
stand in a heap: O(n log n). A number whose pair has changed since is dropped when it comes up. This finds out
what the tokens of a vocabulary are made of; `greedy` then encodes with them, several times as fast. It also
encodes with vocabularies that `greedy` cannot do.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int32, Int32In, Int64, Int64In, UInt32, UInt64
from tokenizer.kernels.intrinsics import count_leading_zeros, count_trailing_zeros, prefetch
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pairs import (
    NO_MERGE,
    PairTables,
    fetch_pair,
    find_rank,
    insert,
    look_up_rank,
    may_merge,
    pair_key,
)

FEW_BYTES = 16
"""Up to here looking through all pairs is faster than a heap, and without wide characters than `greedy`."""

_FEW_BITS = np.uint32(4)
_FEW_MASK = np.uint32(15)
_NOTHING = NO_MERGE << _FEW_BITS
_ONE, _TWO, _LAST_BIT = np.uint64(1), np.uint64(2), np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_BYTE_BITS = _EIGHT = np.uint64(8)
_POSITION_BITS = np.uint64(32)
_POSITION_MASK = np.uint64(0xFFFFFFFF)


class Scratch(NamedTuple):
    """Working memory for merging what is as long as its arrays, and twice that in the heap.

    Attributes:
        ids: the symbol that begins at a position.
        ranks: the rank of its merge with the next symbol.
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
    """Make working memory for pre-tokens of up to `length` bytes, and for FEW_BYTES at least."""
    length = max(length, FEW_BYTES + 1)
    return Scratch(
        np.empty(length, np.int32),
        np.empty(length, np.uint32),
        np.empty(length, np.int32),
        np.empty(length, np.int32),
        np.empty(2 * length, np.uint64),
    )


@kernel(inline=True)
def start_symbols(data: BytesIn, start: int, length: int, tables: PairTables, scratch: Scratch) -> None:
    """Set up one symbol a byte, and the ranks of their pairs."""
    for at in range(length):
        scratch.ids[at] = tables.byte_ids[data[start + at]]
        scratch.preceding[at], scratch.following[at] = at - 1, at + 1
        scratch.ranks[at] = NO_MERGE
        if at > 0:
            scratch.ranks[at - 1] = find_rank(tables, scratch.ids[at - 1], scratch.ids[at])


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
def write_few(symbols: np.uint64, length: np.uint64, ids: Int32, out: UInt32, first: int) -> int:
    """Write the symbols that begin at the bits of a number, the one at `length` left out; return how many."""
    place, at = np.uint64(first), np.uint64(0)
    while at < length:
        out[place] = ids[at]
        place += _ONE
        symbols &= symbols - _ONE
        at = count_trailing_zeros(symbols)
    return np.int64(place) - first


@kernel(inline=True)
def least_rank(ranks: UInt32, length: np.uint64) -> np.uint32:
    """Return the least of the ranks, compared in a tree, so that few comparisons wait for another."""
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
    """Set up one symbol a byte; rank and position of every pair stand in one number each."""
    for i in range(FEW_BYTES):
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
    """Note the rank of the pair at a position, and ask for what its merge makes, before that is needed."""
    rank = look_up_rank(tables, key)
    prefetch(tables.results, np.int64(rank))
    ranks[at] = rank << _FEW_BITS | np.uint32(at)


@kernel(inline=True)
def merge_few(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode up to FEW_BYTES into `out` from `first` on; return how many ids they make.

    The least rank is looked for in all. Where symbols begin is a bit each in `symbols`, and so is where they
    end. A merge makes two new pairs, whose places are asked for together before either is looked at.
    """
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
def merge_bytes(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> tuple[int, int]:
    """Encode bytes into `out` from `first` on; return how many ids, and the rank of the last merge."""
    length, size, last = end - start, np.int64(0), np.int64(-1)
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
        last = np.int64(top >> _POSITION_BITS)
        scratch.ranks[scratch.following[at]] = NO_MERGE
        before, this = join(at, last, length, tables, scratch)
        scratch.ranks[at] = NO_MERGE
        for changed in (before, this):
            if changed >= 0:
                rank = rank_at(changed, tables, scratch)
                scratch.ranks[changed] = rank
                if rank != NO_MERGE:
                    sift_up(scratch.heap, size, np.uint64(rank) << _POSITION_BITS | np.uint64(changed))
                    size += 1
    return write_symbols(length, scratch, out, first), last


@kernel
def find_last_merges(
    tables: PairTables,
    token_data: BytesIn,
    token_offsets: Int64In,
    tokens: Int64In,
    ranks: Int32,
    scratch: Scratch,
    out: UInt32,
) -> None:
    """Find the rank of the merge that makes each token of its own bytes.

    A token whose bytes merge to something else is not found in any encoding: the bytes inside of a token
    are merged in the same order wherever it stands.

    Args:
        tables: the merges.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
        tokens: ids of tokens of two bytes or more.
        ranks: shape (num_ids,); receives the rank, -1 where merging does not lead to the token.
        scratch: working memory for the longest token.
        out: the same.
    """
    for k in range(tokens.shape[0]):
        token = tokens[k]
        start, end = token_offsets[token], token_offsets[token + 1]
        count, last = merge_bytes(token_data, start, end, tables, scratch, out, np.int64(0))
        ranks[token] = last if count == 1 and np.int64(out[0]) == token else -1


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
        count, _ = merge_bytes(token_data, start, end, tables, scratch, out, np.int64(0))
        if count == 2:
            parents[token] = np.int64(out[0]) << 32 | np.int64(out[1])
            insert(tables, out[0], out[1], rank_of[token], token)
