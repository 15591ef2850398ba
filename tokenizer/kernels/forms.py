"""Put a text in the place of each character, by a table; and Unicode's normalization forms.

Text that is in a form is passed over; what is not is replaced.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int64, Int64In, UInt64
from tokmill.tokenizer.jit.intrinsics import load_u64
from tokmill.tokenizer.kernels.split import entry

UNKNOWN, SAME, APART, FIRST = 0, 1, 2, 3
"""What a cell says: nothing yet; the character stays; its document has to be done otherwise; or a text."""

LENGTH_BITS, LENGTH_MASK = 5, 31
DONE, FULL, ASKS, LEAVES = 0, 1, 2, 3
"""Why a call ends: all is done; `out` is full; a cell is unknown; the document has to be done otherwise."""


class CharacterTables(NamedTuple):
    """What becomes of characters.

    Attributes:
        cells: int32, shape (0x110000,), by code point: `UNKNOWN`, `SAME`, `APART`, or `FIRST` + length of a
            text + 32 × its place in `texts`.
        texts: uint8, UTF-8.
    """

    cells: Int32
    texts: Bytes


@kernel(inline=True)
def read_strictly(data: BytesIn, at: int, end: int) -> tuple[int, int]:
    """Return code point and size of the character at `at`; size 0 if it is no well-formed UTF-8."""
    byte = entry(data, at)
    if byte < 0x80:
        return byte, 1
    size = 2 if byte < 0xE0 else (3 if byte < 0xF0 else 4)
    if byte < 0xC2 or byte > 0xF4 or at + size > end:
        return 0, 0
    point, bad = byte & (0x7F >> size), 0
    for place in range(at + 1, at + size):
        following = entry(data, place) ^ 0x80
        bad |= following >> 6
        point = point << 6 | following & 63
    least = 0x80 if size == 2 else (0x800 if size == 3 else 0x10000)
    if bad or point < least or point > 0x10FFFF or 0xD800 <= point < 0xE000:
        return 0, 0
    return point, size


@kernel
def map_characters(
    data: BytesIn,
    offsets: Int64In,
    keep: BytesIn,
    tables: CharacterTables,
    out: Bytes,
    bounds: Int64,
    state: Int64,
) -> int:
    """Map the characters of documents, from the place in `state` on; bytes that are not UTF-8 stay.

    Returns `DONE`, `FULL` (`out` is too short), `ASKS` for the code point in `state`, or `LEAVES`.
    """
    document, at, size = state[0], state[1], state[2]
    room = len(out) - LENGTH_MASK
    why = DONE
    while document < len(offsets) - 1 and why == DONE:
        end = offsets[document + 1]
        bounds[document] = size if at == offsets[document] else bounds[document]
        while at < end:
            if size > room:
                why = FULL
                break
            if not keep[document] and entry(data, at) < 0x80:
                byte = entry(data, at)
                cell = entry(tables.cells, byte)
                if cell == SAME or (cell - FIRST) & LENGTH_MASK == 1:
                    place = (cell - FIRST) >> LENGTH_BITS
                    out[np.uint64(size)] = byte if cell == SAME else entry(tables.texts, place)
                    at, size = at + 1, size + 1
                    continue
            point, width = read_strictly(data, at, end)
            cell = SAME if width == 0 or keep[document] else entry(tables.cells, point)
            width = max(width, 1)
            if cell == SAME:
                for place in range(at, at + width):
                    out[size] = data[place]
                    size += 1
            elif cell < FIRST:
                state[3] = point
                why = ASKS if cell == UNKNOWN else LEAVES
                break
            else:
                place = (cell - FIRST) >> LENGTH_BITS
                for _ in range((cell - FIRST) & LENGTH_MASK):
                    out[size] = tables.texts[place]
                    place += 1
                    size += 1
            at += width
        if why == DONE:
            document += 1
    state[0], state[1], state[2] = document, at, size
    bounds[document] = size if document == len(offsets) - 1 else bounds[document]
    return why


UNSEEN, PLAIN, OTHER = 0, 1, 2
"""A character's kind: not looked at; never changed, and begins anew; or what its cell says."""

STAYS, MAYBE = 0, 1
"""What a cell says beside `APART` and texts: it stays; or it stays unless it joins the one before."""

ASKS_PAIR = 4
UNKNOWN_LAST, NO_LAST = -1, -2
NUM_PAIRS = 1 << 14
_NOT_ASCII = np.uint64(0x8080808080808080)
_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(50)

DOCUMENT, AT, SIZE, POINT, COPIED, SAFE_AT, SAFE_SIZE, CLASS, LAST = range(9)
"""The fields of the state of a call."""


class FormTables(NamedTuple):
    """What a form does to characters, by code point.

    Attributes:
        kinds: uint8, shape (0x110000,): `UNSEEN`, `PLAIN` or `OTHER`.
        cells: int32, same shape: `STAYS`, `MAYBE`, `APART`, or as in `CharacterTables`.
        first: uint8, same shape: the combining class of the first character of what it becomes.
        last: uint8, same shape: that of the last one.
        texts: uint8, UTF-8.
        pairs: uint64, shape (NUM_PAIRS,): for two characters, 2 × `pair_key`, and 1 more if they change where
            they meet; by hash, 0 where there is none.
    """

    kinds: Bytes
    cells: Int32
    first: Bytes
    last: Bytes
    texts: Bytes
    pairs: UInt64


@kernel(inline=True)
def pair_key(one: int, other: int) -> int:
    """Return the key of two characters."""
    return one << 21 | other


@kernel(inline=True)
def pair_slot(pairs: UInt64, key: int) -> int:
    """Return where a key is, or where it would be."""
    slot = np.int64((np.uint64(key) * _SPREAD) >> _SHIFT)
    while pairs[slot] != 0 and np.int64(pairs[slot] >> np.uint64(1)) != key:
        slot = (slot + 1) & (NUM_PAIRS - 1)
    return slot


@kernel
def find_slot(pairs: UInt64, one: int, other: int) -> int:
    """Return where a pair is, or where it would be."""
    return pair_slot(pairs, pair_key(one, other))


@kernel(inline=True)
def joins(tables: FormTables, last: int, before: int, point: int, begins: int) -> int:
    """Say what a character that may join does: `DONE` if it stays, `LEAVES`, or `ASKS_PAIR`."""
    if before != 0:  # marks stand between; those of the same class, and any mark, block what is no mark
        return DONE if begins == 0 or begins == before else LEAVES
    if last < 0:
        return DONE if last == NO_LAST else LEAVES
    found = np.int64(tables.pairs[pair_slot(tables.pairs, pair_key(last, point))])
    if found == 0:
        return ASKS_PAIR
    return LEAVES if found & 1 else DONE


@kernel(inline=True)
def decide(tables: FormTables, kind: int, point: int, last: int, before: int) -> int:
    """Say whether a character that is not plain can be passed or replaced: `DONE`, or why not."""
    if kind == UNSEEN:
        return ASKS
    cell, begins = entry(tables.cells, point), entry(tables.first, point)
    if cell == APART or (begins != 0 and before > begins):
        return LEAVES
    return joins(tables, last, before, point, begins) if cell == MAYBE else DONE


@kernel(inline=True)
def write_text(data: BytesIn, begin: int, end: int, cell: int, texts: Bytes, out: Bytes, size: int) -> int:
    """Copy text that stays, and the text of a cell after it; return the new size."""
    for place in range(begin, end):
        out[size] = data[place]
        size += 1
    place = (cell - FIRST) >> LENGTH_BITS
    for _ in range((cell - FIRST) & LENGTH_MASK):
        out[size] = texts[place]
        place += 1
        size += 1
    return size


@kernel(inline=True)
def skip_ascii(data: BytesIn, at: int, end: int) -> int:
    """Return where eight bytes begin that are not all ASCII, or fewer are left."""
    while at + 8 <= end and load_u64(data, at) & _NOT_ASCII == 0:
        at += 8
    return at


@kernel
def apply_form(
    data: BytesIn,
    offsets: Int64In,
    keep: BytesIn,
    tables: FormTables,
    out: Bytes,
    bounds: Int64,
    state: Int64,
) -> int:
    """Normalize documents as far as the tables say how; bytes that are not UTF-8 stay as they are.

    Text that stays is not copied until something after it changes. Returns `DONE`, `FULL` (`out` is too
    short), `ASKS` and `ASKS_PAIR` for the character `LAST` in `state`, or `LEAVES`: from `SAFE_AT` on, where
    a character begins anew, the text has to be done otherwise. `state` says where a call goes on.
    """
    document, at, size, copied = state[DOCUMENT], state[AT], state[SIZE], state[COPIED]
    safe_at, safe_size, before, last = state[SAFE_AT], state[SAFE_SIZE], state[CLASS], state[LAST]
    why = DONE
    while document < len(offsets) - 1 and why == DONE:
        end = offsets[document + 1]
        if at == offsets[document]:
            bounds[document] = size + at - copied
            safe_at, safe_size, before, last = at, size + at - copied, 0, NO_LAST
        at = end if keep[document] else at
        while at < end:
            after = skip_ascii(data, at, end)
            if after > at:
                safe_at, safe_size, before, last = after - 1, size + after - 1 - copied, 0, data[after - 1]
                at = after
                continue
            point, width = read_strictly(data, at, end)
            kind = PLAIN if width == 0 else entry(tables.kinds, point)
            if kind == PLAIN:
                safe_at, safe_size, before = at, size + at - copied, 0
                last = point if width else NO_LAST
                at += max(width, 1)
                continue
            cell = entry(tables.cells, point)
            why = decide(tables, kind, point, last, before)
            if why == DONE and cell >= FIRST and size + at - copied + LENGTH_MASK > len(out):
                why = FULL
            if why != DONE:
                state[POINT] = point
                break
            if entry(tables.first, point) == 0:
                safe_at, safe_size = at, size + at - copied
                last = UNKNOWN_LAST if cell >= FIRST else point
            before = entry(tables.last, point)
            if cell >= FIRST:
                size = write_text(data, copied, at, cell, tables.texts, out, size)
                copied = at + width
            at += width
        if why == DONE:
            document += 1
            bounds[document] = size + at - copied
    state[DOCUMENT], state[AT], state[SIZE], state[COPIED] = document, at, size, copied
    state[SAFE_AT], state[SAFE_SIZE], state[CLASS], state[LAST] = safe_at, safe_size, before, last
    return why
