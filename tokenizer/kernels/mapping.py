"""Put a text in the place of each character, by a table."""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int64, Int64In
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
