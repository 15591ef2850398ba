"""Count distinct byte strings in hash tables, open-addressed with linear probing.

Strings of up to 15 bytes are stored whole in the rows of one table. Longer ones have entries, which point
into an arena of bytes, and slots, which hold half of the hash and the entry. Strings are taken in blocks:
first the memory of all of them is prefetched, then they are counted.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import (
    Bytes,
    BytesIn,
    Int64,
    Int64In,
    UInt64,
    UInt64In,
    UInt64Table,
    zero_pages,
)
from tokmill.tokenizer.jit.intrinsics import load_u64, prefetch
from tokmill.tokenizer.kernels.words import MAX_SHORT, hash_long, hash_short, load_short

_HALF = np.uint64(32)
LOWER = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
_LENGTH_SHIFT = 56
_ROW = 3
BLOCK = 32

SHORT, LONG, ARENA = 0, 1, 2


class CountTables(NamedTuple):
    """Counts of distinct strings.

    Attributes:
        short: shape (3 * a power of two,): two words of bytes, and the count, 0 where empty.
        slots: shape (a power of two,): the upper half of a longer string's hash, and its entry + 1; 0 where
            empty.
        entries: shape (half of that, 3): place in the arena, length, count.
        arena: the bytes of longer strings.
        used: shape (3,): short strings, entries and arena bytes in use.
        block: scratch: a block's strings, as words if they are short, and their hashes.
    """

    short: UInt64
    slots: UInt64
    entries: UInt64Table
    arena: Bytes
    used: Int64
    block: UInt64Table


def empty_tables(short: int, entries: int, arena: int) -> CountTables:
    """Make tables of given sizes, the first two powers of two."""
    return CountTables(
        zero_pages(_ROW * short, np.uint64),
        zero_pages(2 * entries, np.uint64),
        zero_pages((entries, 3), np.uint64),
        zero_pages(arena, np.uint8),
        np.zeros(3, np.int64),
        np.empty((BLOCK, 3), np.uint64),
    )


@kernel
def count_strings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    weights: UInt64In,
    first: int,
    tables: CountTables,
    new: Int64,
    noted: Int64,
) -> int:
    """Count strings from `first` on, with or without weights; return n, or the string that had no room.

    New ones are listed in `new`, `noted[0]` in number, unless that has no room at all.
    """
    total = starts.shape[0]
    for begin in range(first, total, BLOCK):
        end = min(begin + BLOCK, total)
        hash_block(data, starts, ends, begin, end, tables)
        for k in range(begin, end):
            weight = weights[k] if weights.shape[0] > 0 else np.uint64(1)
            known = tables.used[SHORT] + tables.used[LONG]
            if not count_string(data, starts[k], ends[k] - starts[k], weight, k - begin, tables):
                return k
            if new.shape[0] > 0 and tables.used[SHORT] + tables.used[LONG] > known:
                new[noted[0]] = k
                noted[0] += 1
    return total


@kernel
def read_counts(data: BytesIn, offsets: Int64In, tables: CountTables, counts: UInt64) -> None:
    """Read how often strings were counted; each of them was."""
    total = counts.shape[0]
    starts, ends = offsets[:-1], offsets[1:]
    for begin in range(0, total, BLOCK):
        end = min(begin + BLOCK, total)
        hash_block(data, starts, ends, begin, end, tables)
        for k in range(begin, end):
            counts[k] = weight_of(data, starts[k], ends[k] - starts[k], k - begin, tables)


@kernel(inline=True)
def weight_of(data: BytesIn, start: int, length: int, place: int, tables: CountTables) -> np.uint64:
    """Return the count of a string that has a place in the hashed block, 0 if there is none."""
    row = np.uint64(place)
    low, high, digest = tables.block[row, 0], tables.block[row, 1], tables.block[row, 2]
    if length <= MAX_SHORT:
        return tables.short[place_of_short(low, high, digest, tables.short) + np.uint64(2)]
    slot = slot_of_long(data, start, length, digest, tables)
    if tables.slots[slot] == 0:
        return np.uint64(0)
    return tables.entries[np.int64(tables.slots[slot] & LOWER) - 1, 2]


@kernel(inline=True)
def count_string(
    data: BytesIn, start: int, length: int, weight: np.uint64, place: int, tables: CountTables
) -> bool:
    """Add to the count of a string that has a place in the hashed block; False if there is no room for it."""
    row = np.uint64(place)
    low, high, digest = tables.block[row, 0], tables.block[row, 1], tables.block[row, 2]
    if length <= MAX_SHORT:
        return count_short(low, high, digest, weight, tables)
    return count_long(data, start, length, digest, weight, tables)


@kernel(inline=True)
def hash_block(
    data: BytesIn, starts: Int64In, ends: Int64In, begin: int, end: int, tables: CountTables
) -> None:
    """Hash the strings of a block, and ask for the memory where each would be."""
    for k in range(begin, end):
        row, length = np.uint64(k - begin), ends[k] - starts[k]
        if length <= MAX_SHORT:
            low, high = load_short(data, starts[k], length)
            digest = hash_short(low, high)
            tables.block[row, 0], tables.block[row, 1] = low, high
            prefetch(tables.short, home(digest, tables.short.shape[0] // _ROW) * _ROW)
        else:
            digest = hash_long(data, starts[k], ends[k])
            prefetch(tables.slots, home(digest, tables.slots.shape[0]))
        tables.block[row, 2] = digest


@kernel(inline=True)
def home(digest: np.uint64, size: int) -> int:
    """Return where the search for a string begins, by the upper half of its hash."""
    return np.int64(digest >> _HALF) & (size - 1)


@kernel(inline=True)
def count_short(
    low: np.uint64, high: np.uint64, digest: np.uint64, weight: np.uint64, tables: CountTables
) -> bool:
    """Add to the count of a short string; False if there is no room for a new one."""
    at = place_of_short(low, high, digest, tables.short)
    if tables.short[at + np.uint64(2)] != 0:
        tables.short[at + np.uint64(2)] += weight
        return True
    if 4 * tables.used[SHORT] >= 3 * (tables.short.shape[0] // _ROW):
        return False
    tables.short[at], tables.short[at + np.uint64(1)], tables.short[at + np.uint64(2)] = low, high, weight
    tables.used[SHORT] += 1
    return True


@kernel(inline=True)
def count_long(
    data: BytesIn, start: int, length: int, digest: np.uint64, weight: np.uint64, tables: CountTables
) -> bool:
    """Add to the count of a longer string; False if there is no room for a new one."""
    slot = slot_of_long(data, start, length, digest, tables)
    if tables.slots[slot] != 0:
        tables.entries[np.int64(tables.slots[slot] & LOWER) - 1, 2] += weight
        return True
    entry, place = tables.used[LONG], tables.used[ARENA]
    if entry >= tables.entries.shape[0] or place + length > tables.arena.shape[0]:
        return False
    copy_bytes(data, start, tables.arena, place, length)
    tables.slots[slot] = digest >> _HALF << _HALF | np.uint64(entry + 1)
    tables.entries[entry, 0], tables.entries[entry, 1] = np.uint64(place), np.uint64(length)
    tables.entries[entry, 2] = weight
    tables.used[LONG] += 1
    tables.used[ARENA] += length
    return True


@kernel(inline=True)
def place_of_short(low: np.uint64, high: np.uint64, digest: np.uint64, short: UInt64) -> np.uint64:
    """Return where a string of at most MAX_SHORT bytes stands, or would stand: there the weight is 0."""
    size = short.shape[0] // _ROW
    slot = home(digest, size)
    at = np.uint64(_ROW * slot)
    while short[at + np.uint64(2)] != 0 and not (short[at] == low and short[at + np.uint64(1)] == high):
        slot = (slot + 1) & (size - 1)
        at = np.uint64(_ROW * slot)
    return at


@kernel(inline=True)
def slot_of_long(data: BytesIn, start: int, length: int, digest: np.uint64, tables: CountTables) -> int:
    """Return the slot of a longer string, or the empty one in which it would be."""
    slot = home(digest, tables.slots.shape[0])
    while tables.slots[slot] != 0:
        entry = np.int64(tables.slots[slot] & LOWER) - 1
        if (
            (tables.slots[slot] ^ digest) >> _HALF == 0
            and np.int64(tables.entries[entry, 1]) == length
            and is_same(data, start, tables.arena, np.int64(tables.entries[entry, 0]), length)
        ):
            break
        slot = (slot + 1) & (tables.slots.shape[0] - 1)
    return slot


@kernel(inline=True)
def is_same(first: BytesIn, first_start: int, second: BytesIn, second_start: int, length: int) -> bool:
    """Compare two stretches of eight bytes or more."""
    last = length - 8
    for i in range(0, last, 8):
        if load_u64(first, first_start + i) != load_u64(second, second_start + i):
            return False
    return load_u64(first, first_start + last) == load_u64(second, second_start + last)


@kernel(inline=True)
def copy_bytes(source: BytesIn, start: int, target: Bytes, place: int, length: int) -> None:
    """Copy a stretch of bytes; with indices that cannot be negative, which is vector code."""
    begin, first = np.uint64(start), np.uint64(place)
    for i in range(np.uint64(length)):
        target[first + np.uint64(i)] = source[begin + np.uint64(i)]


@kernel
def move_short(old: UInt64In, tables: CountTables) -> None:
    """Put the short strings of an old table into a larger one, which is empty."""
    for at in range(0, old.shape[0], _ROW):
        if old[at + 2] != 0:
            count_short(old[at], old[at + 1], hash_short(old[at], old[at + 1]), old[at + 2], tables)


@kernel
def move_slots(old: UInt64In, new: UInt64) -> None:
    """Put the slots of longer strings into a larger table, which is empty."""
    for k in range(old.shape[0]):
        if old[k] != 0:
            slot = home(old[k], new.shape[0])
            while new[slot] != 0:
                slot = (slot + 1) & (new.shape[0] - 1)
            new[slot] = old[k]


@kernel
def list_counts(tables: CountTables, data: Bytes, offsets: Int64, counts: UInt64) -> int:
    """Write all strings and their counts, in no order; return the number of bytes that the strings have."""
    position, number = np.int64(0), 0
    offsets[0] = position
    for at in range(0, tables.short.shape[0], _ROW):
        if tables.short[at + 2] == 0:
            continue
        length = np.int64(tables.short[at + 1] >> np.uint64(_LENGTH_SHIFT))
        for i in range(length):
            data[position + i] = tables.short[at + (i >> 3)] >> np.uint64(8 * (i & 7)) & _BYTE
        position += length
        counts[number] = tables.short[at + 2]
        number += 1
        offsets[number] = position
    copy_bytes(tables.arena, np.int64(0), data, position, tables.used[ARENA])
    for entry in range(tables.used[LONG]):  # they lie in the arena in their order
        position += np.int64(tables.entries[entry, 1])
        counts[number] = tables.entries[entry, 2]
        number += 1
        offsets[number] = position
    return position
