"""Encode by merges, as in the definition: the merge of lowest rank first, at its leftmost place.

The symbols of a pre-token are a linked list over its byte positions, and a heap has ranks and positions of
their pairs; an outdated entry is dropped when it comes up. A merge has a *rank*, two parents and a result.
The pair table is open-addressed; an entry is one word, `left << 43 | right << 22 | rank`. Most pairs have no
merge, as a small filter of single bits tells.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int32In, Int64, Int64In, UInt32, UInt64
from tokmill.tokenizer.jit.intrinsics import prefetch

LEAST_ROOM = 32
"""At least the working memory of `short_merges`."""

POSITION_BITS = np.uint64(32)
POSITION_MASK = np.uint64(0xFFFFFFFF)
"""The position in an entry of the heap, whose other bits are the rank."""


class Scratch(NamedTuple):
    """Working memory for merging a pre-token of at most the arrays' length; the heap has twice that length.

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
    """Make working memory for pre-tokens of up to `length` bytes, and for LEAST_ROOM at least."""
    length = max(length, LEAST_ROOM)
    return Scratch(
        np.empty(length, np.int32),
        np.empty(length, np.uint32),
        np.empty(length, np.int32),
        np.empty(length, np.int32),
        np.empty(2 * length, np.uint64),
    )


class PairTables(NamedTuple):
    """The tables of encoding by merges.

    Attributes:
        byte_ids: shape (256,), the token id of each byte.
        entries: shape (a power of two,), the pair table.
        shift: 64 less the logarithm of the table's size.
        filter: shape (a sixteenth of the table's,), four bits for each of its entries: whether a pair that
            belongs there has a merge.
        byte_pairs: shape (65536,), by first byte * 256 + second: the rank of their merge, or NO_MERGE.
        results: shape (num_merges,), the id that each merge makes.
    """

    byte_ids: Int32
    entries: UInt64
    shift: int
    filter: UInt64
    byte_pairs: UInt32
    results: Int32


@kernel(inline=True)
def start_symbols(data: BytesIn, start: int, length: int, tables: PairTables, scratch: Scratch) -> None:
    """Set up one symbol per byte, and the ranks of their pairs."""
    for at in range(length):
        scratch.ids[at] = tables.byte_ids[data[start + at]]
        scratch.preceding[at], scratch.following[at] = at - 1, at + 1
        scratch.ranks[at] = NO_MERGE
        if at > 0:
            scratch.ranks[at - 1] = find_rank(tables, scratch.ids[at - 1], scratch.ids[at])


@kernel(inline=True)
def write_symbols(length: int, scratch: Scratch, out: UInt32, first: int) -> int:
    """Write the symbols into `out` from `first` on; return their number."""
    count = 0
    at = np.int64(0)
    while at < length:
        out[first + count] = scratch.ids[at]
        count += 1
        at = np.int64(scratch.following[at])
    return count


@kernel(inline=True)
def join(at: int, rank: int, length: int, tables: PairTables, scratch: Scratch) -> tuple[int, int]:
    """Join a symbol with the next; return the positions of the new pairs before and at it, -1 for none."""
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
def push_merges(length: int, scratch: Scratch) -> int:
    """Make the heap of the merges of symbols that were set up; return its size."""
    size = np.int64(0)
    for i in range(length):
        if scratch.ranks[i] != NO_MERGE:
            sift_up(scratch.heap, size, np.uint64(scratch.ranks[i]) << POSITION_BITS | np.uint64(i))
            size += 1
    return size


@kernel(inline=True)
def join_and_push(entry: np.uint64, length: int, size: int, tables: PairTables, scratch: Scratch) -> int:
    """Join the symbols of an entry that was taken off the heap, push new merges, and return its new size."""
    at = np.int64(entry & POSITION_MASK)
    scratch.ranks[scratch.following[at]] = NO_MERGE
    before, this = join(at, np.int64(entry >> POSITION_BITS), length, tables, scratch)
    scratch.ranks[at] = NO_MERGE
    for changed in (before, this):
        if changed >= 0:
            rank = rank_at(changed, tables, scratch)
            scratch.ranks[changed] = rank
            if rank != NO_MERGE:
                sift_up(scratch.heap, size, np.uint64(rank) << POSITION_BITS | np.uint64(changed))
                size += 1
    return size


@kernel(inline=True)
def merge_symbols(length: int, tables: PairTables, scratch: Scratch) -> int:
    """Merge symbols that were set up; return the rank of the last merge, -1 if there was none."""
    last, size = np.int64(-1), push_merges(length, scratch)
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        if scratch.ranks[np.int64(top & POSITION_MASK)] != np.uint32(top >> POSITION_BITS):
            continue
        last = np.int64(top >> POSITION_BITS)
        size = join_and_push(top, length, size, tables, scratch)
    return last


@kernel(inline=True)
def merge_bytes(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> tuple[int, int]:
    """Encode bytes into `out` from `first` on; return the number of ids, and the rank of the last merge."""
    length = end - start
    start_symbols(data, start, length, tables, scratch)
    last = merge_symbols(length, tables, scratch)
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
    """Find the rank of the last merge in encoding each token's own bytes.

    A token whose bytes merge to something else is not found in any encoding: the bytes inside of a token
    are merged in the same order wherever it stands.
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
    """Find the merge that makes each token of a vocabulary that is only a list of byte strings.

    A token's parents are the two tokens that its own bytes end in when they are merged by all shorter
    tokens, lowest rank first: the bytes inside of a token are merged in the same order wherever it stands,
    so no other pair can ever make it. A token whose bytes end in more than two can not be reached.
    """
    for k in range(by_length.shape[0]):
        token = by_length[k]
        start, end = token_offsets[token], token_offsets[token + 1]
        parents[token] = -1
        count, _ = merge_bytes(token_data, start, end, tables, scratch, out, np.int64(0))
        if count == 2:
            parents[token] = np.int64(out[0]) << 32 | np.int64(out[1])
            insert(tables, out[0], out[1], rank_of[token], token)


MAX_IDS = (1 << 21) - 1
MAX_MERGES = (1 << 22) - 1
NO_MERGE = np.uint32(MAX_MERGES)

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_RANK_BITS = np.uint64(22)
_ID_BITS = np.uint64(21)
_RANK_MASK = np.uint64(MAX_MERGES)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_FILTER_BITS = np.uint64(2)
_WORD_BITS = np.uint64(6)
_BIT_MASK = np.uint64(63)


def empty_tables(byte_ids: Int32, num_merges: int) -> PairTables:
    """Make tables that hold no merge yet and have room for `num_merges`, at most half full."""
    bits = max((2 * num_merges).bit_length(), 4)
    return PairTables(
        np.ascontiguousarray(byte_ids, np.int32),
        np.full(1 << bits, _EMPTY, np.uint64),
        64 - bits,
        np.zeros(1 << (bits - 4), np.uint64),
        np.full(1 << 16, NO_MERGE, np.uint32),
        np.zeros(num_merges, np.int32),
    )


@kernel(inline=True)
def pair_key(left: int, right: int) -> np.uint64:
    """Return the key of a pair in the table."""
    return np.uint64(left) << _ID_BITS | np.uint64(right)


@kernel(inline=True)
def home_of(tables: PairTables, key: np.uint64) -> np.uint64:
    """Return the entry at which the search for a pair begins."""
    return (key * _MULTIPLIER) >> np.uint64(tables.shift)


@kernel(inline=True)
def filter_place(tables: PairTables, key: np.uint64) -> np.uint64:
    """Return the number of a pair's bit in the filter."""
    return (key * _MULTIPLIER) >> (np.uint64(tables.shift) - _FILTER_BITS)


@kernel(inline=True)
def may_merge(tables: PairTables, key: np.uint64) -> bool:
    """Whether a pair may have a merge; if False, it has none."""
    place = filter_place(tables, key)
    return tables.filter[place >> _WORD_BITS] >> (place & _BIT_MASK) & _ONE == _ONE


@kernel(inline=True)
def fetch_pair(tables: PairTables, key: np.uint64, wanted: bool) -> None:
    """Prefetch the place of a pair in the table, if `wanted`."""
    prefetch(tables.entries, np.int64(home_of(tables, key)) if wanted else np.int64(0))


@kernel(inline=True)
def look_up_rank(tables: PairTables, key: np.uint64) -> np.uint32:
    """Return the rank of the merge of a pair, or NO_MERGE, without the filter."""
    slot, mask = home_of(tables, key), np.uint64(tables.entries.shape[0] - 1)
    while True:
        entry = tables.entries[slot]
        if entry >> _RANK_BITS == key:
            return np.uint32(entry & _RANK_MASK)
        if entry == _EMPTY:
            return NO_MERGE
        slot = (slot + _ONE) & mask


@kernel(inline=True)
def find_rank(tables: PairTables, left: int, right: int) -> np.uint32:
    """Return the rank of the merge that joins two tokens, or NO_MERGE."""
    key = pair_key(left, right)
    return look_up_rank(tables, key) if may_merge(tables, key) else NO_MERGE


@kernel(inline=True)
def insert(tables: PairTables, left: int, right: int, rank: int, result: int) -> bool:
    """Add a merge; False if the pair has one already."""
    key = pair_key(left, right)
    slot, mask = home_of(tables, key), np.uint64(tables.entries.shape[0] - 1)
    while tables.entries[slot] != _EMPTY:
        if tables.entries[slot] >> _RANK_BITS == key:
            return False
        slot = (slot + _ONE) & mask
    place = filter_place(tables, key)
    tables.filter[place >> _WORD_BITS] |= _ONE << (place & _BIT_MASK)
    tables.entries[slot] = (key << _RANK_BITS) | np.uint64(rank)
    tables.results[rank] = result
    return True


@kernel
def insert_merges(tables: PairTables, left: Int32In, right: Int32In, result: Int32In) -> int:
    """Add merges in order of rank; return the first whose pair is in the table already, or -1."""
    for rank in range(left.shape[0]):
        if not insert(tables, left[rank], right[rank], rank, result[rank]):
            return rank
    for pair in range(tables.byte_pairs.shape[0]):
        tables.byte_pairs[pair] = find_rank(tables, tables.byte_ids[pair >> 8], tables.byte_ids[pair & 0xFF])
    return -1
