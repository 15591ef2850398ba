"""Counting distinct byte strings in hash tables.

Strings of up to 15 bytes stand whole in the slots of one table. Longer ones have entries, which point into
an arena of bytes, and a table of slots that point to entries. Both are open-addressed with linear probing
and at most half full.
"""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import Bytes, BytesIn, Int32, Int64, Int64In, UInt64, UInt64Table
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.words import MAX_SHORT, equal_bytes, hash_long, hash_short, load_short

_HALF = np.uint64(32)
_BYTE = np.uint64(0xFF)
_LENGTH_SHIFT = 56

SHORT, LONG, ARENA = 0, 1, 2


class CountTables(NamedTuple):
    """Counts of distinct strings.

    Attributes:
        short: shape (a power of two, 3): two words of bytes, and the count, 0 where empty.
        slots: shape (a power of two,): entries of longer strings, -1 where empty.
        entries: shape (half of that, 4): hash, place in the arena, length, count.
        arena: the bytes of longer strings.
        used: shape (3,): short strings, entries and arena bytes in use.
    """

    short: UInt64Table
    slots: Int32
    entries: UInt64Table
    arena: Bytes
    used: Int64


def empty_tables(short: int, entries: int, arena: int) -> CountTables:
    """Make tables of given sizes, the first two powers of two."""
    return CountTables(
        np.zeros((short, 3), np.uint64),
        np.full(2 * entries, -1, np.int32),
        np.zeros((entries, 4), np.uint64),
        np.zeros(arena, np.uint8),
        np.zeros(3, np.int64),
    )


@kernel
def count_strings(data: BytesIn, starts: Int64In, ends: Int64In, first: int, tables: CountTables) -> int:
    """Count strings from `first` on.

    Args:
        data: holds the strings.
        starts: shape (n,).
        ends: shape (n,).
        first: where to begin.
        tables: changed.

    Returns:
        n, or the string for which there was no room.
    """
    for k in range(first, starts.shape[0]):
        length = ends[k] - starts[k]
        if length <= MAX_SHORT:
            low, high = load_short(data, starts[k], length)
            if not count_short(low, high, np.uint64(1), tables):
                return k
        elif not count_long(data, starts[k], length, tables):
            return k
    return starts.shape[0]


@kernel(inline=True)
def count_short(low: np.uint64, high: np.uint64, number: np.uint64, tables: CountTables) -> bool:
    """Add to the count of a short string; False if there is no room for a new one."""
    mask = np.int64(tables.short.shape[0] - 1)
    slot = np.int64(hash_short(low, high) >> _HALF) & mask
    while tables.short[slot, 2] != 0:
        if tables.short[slot, 0] == low and tables.short[slot, 1] == high:
            tables.short[slot, 2] += number
            return True
        slot = (slot + 1) & mask
    if 2 * tables.used[SHORT] >= tables.short.shape[0]:
        return False
    tables.short[slot, 0], tables.short[slot, 1], tables.short[slot, 2] = low, high, number
    tables.used[SHORT] += 1
    return True


@kernel(inline=True)
def count_long(data: BytesIn, start: int, length: int, tables: CountTables) -> bool:
    """Count a longer string; False if there is no room for a new one."""
    digest = hash_long(data, start, start + length)
    mask = np.int64(tables.slots.shape[0] - 1)
    slot = np.int64(digest >> _HALF) & mask
    while tables.slots[slot] >= 0:
        entry = np.int64(tables.slots[slot])
        place = np.int64(tables.entries[entry, 1])
        if (
            tables.entries[entry, 0] == digest
            and np.int64(tables.entries[entry, 2]) == length
            and equal_bytes(data, start, tables.arena, place, length)
        ):
            tables.entries[entry, 3] += np.uint64(1)
            return True
        slot = (slot + 1) & mask
    entry, place = tables.used[LONG], tables.used[ARENA]
    if entry >= tables.entries.shape[0] or place + length > tables.arena.shape[0]:
        return False
    for i in range(length):
        tables.arena[place + i] = data[start + i]
    tables.slots[slot] = entry
    tables.entries[entry, 0], tables.entries[entry, 1] = digest, np.uint64(place)
    tables.entries[entry, 2], tables.entries[entry, 3] = np.uint64(length), np.uint64(1)
    tables.used[LONG] += 1
    tables.used[ARENA] += length
    return True


@kernel
def move_counts(old: CountTables, new: CountTables) -> None:
    """Put all counts into larger, empty tables."""
    for slot in range(old.short.shape[0]):
        if old.short[slot, 2] != 0:
            count_short(old.short[slot, 0], old.short[slot, 1], old.short[slot, 2], new)
    mask = np.int64(new.slots.shape[0] - 1)
    for entry in range(old.used[LONG]):
        slot = np.int64(old.entries[entry, 0] >> _HALF) & mask
        while new.slots[slot] >= 0:
            slot = (slot + 1) & mask
        new.slots[slot] = entry
        for column in range(4):
            new.entries[entry, column] = old.entries[entry, column]
    for i in range(old.used[ARENA]):
        new.arena[i] = old.arena[i]
    new.used[LONG], new.used[ARENA] = old.used[LONG], old.used[ARENA]


@kernel
def list_counts(tables: CountTables, data: Bytes, offsets: Int64, counts: UInt64) -> int:
    """Write all strings and their counts, in no order.

    Args:
        tables: the counts.
        data: room for 15 bytes a short string, and for the arena; receives the strings.
        offsets: shape (number of strings + 1,).
        counts: shape (number of strings,).

    Returns:
        The number of bytes that the strings have.
    """
    position, number = np.int64(0), 0
    offsets[0] = position
    for slot in range(tables.short.shape[0]):
        if tables.short[slot, 2] == 0:
            continue
        length = np.int64(tables.short[slot, 1] >> np.uint64(_LENGTH_SHIFT))
        for i in range(length):
            word = tables.short[slot, i >> 3]
            data[position + i] = (word >> np.uint64(8 * (i & 7))) & _BYTE
        position += length
        counts[number] = tables.short[slot, 2]
        number += 1
        offsets[number] = position
    for entry in range(tables.used[LONG]):
        place, length = np.int64(tables.entries[entry, 1]), np.int64(tables.entries[entry, 2])
        for i in range(length):
            data[position + i] = tables.arena[place + i]
        position += length
        counts[number] = tables.entries[entry, 3]
        number += 1
        offsets[number] = position
    return position
