"""Which pairs of symbols have a merge: an open-addressed table of words `left << 43 | right << 22 | rank`.

A merge has a *rank*, two parents and a result, and belongs to a *group* of merges, mostly alone. Most pairs
have no merge, as a small filter of single bits tells.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32, Int32In, Int32Table, UInt32, UInt64
from tokmill.tokenizer.jit.intrinsics import prefetch

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
        groups: shape (num_merges,), ascending; of merges in one group the leftmost place comes first.
    """

    byte_ids: Int32
    entries: UInt64
    shift: int
    filter: UInt64
    byte_pairs: UInt32
    results: Int32
    groups: Int32


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
        np.arange(num_merges, dtype=np.int32),
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
def insert_merges(tables: PairTables, left: Int32In, right: Int32In, ranks: Int32In, results: Int32In) -> int:
    """Add merges; return the first whose pair is in the table already, or -1."""
    for k in range(left.shape[0]):
        if not insert(tables, left[k], right[k], ranks[k], results[k]):
            return k
    for pair in range(tables.byte_pairs.shape[0]):
        tables.byte_pairs[pair] = find_rank(tables, tables.byte_ids[pair >> 8], tables.byte_ids[pair & 0xFF])
    return -1


def tables_of(byte_ids: Int32, merges: Int32Table) -> tuple[PairTables, int]:
    """Make the tables of rows of left, right and result by rank; return them, and the first clash, or -1."""
    tables = empty_tables(byte_ids, max(merges.shape[0], 1))
    left, right, results = (np.ascontiguousarray(merges[:, column], np.int32) for column in range(3))
    return tables, insert_merges(tables, left, right, np.arange(left.shape[0], dtype=np.int32), results)
