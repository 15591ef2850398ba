"""A decoder for UTF-8 that yields classes of characters, as a table with one step per byte.

A node is the state after some bytes of a character; node 0 is its beginning. A byte leads to a node and
yields a column: `INSIDE` within the character, its class's column on its last byte, `ILL_FORMED` if
the bytes since the character's beginning cannot belong together. Nodes with equal tables are one node.
Source: the Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.splitting.charsets import SURROGATES

INSIDE = 0
_ROW = 64  # characters that share all but their last byte; the same again for the byte before


@dataclass(frozen=True, slots=True)
class Decoder:
    """The table, by 256 * node + byte.

    Attributes:
        next_node: uint32, shape (num_nodes * 256,), the next node times 256.
        column: uint8, same shape.
    """

    next_node: NDArray[np.uint32]
    column: NDArray[np.uint8]


def build_decoder(column_of: NDArray[np.uint8], ill_formed: int) -> Decoder:
    """Build the decoder.

    Args:
        column_of: uint8, shape (0x110000,), the column of each code point. Bytes that cannot begin a
            character get that of the surrogates, of which they are one as `surrogateescape` has it.
        ill_formed: the column for bytes that do not belong together.
    """
    columns = column_of.copy()
    columns[SURROGATES] = ill_formed
    # the first row stands for whatever is no character
    tails, tail_of = _distinct(np.vstack([np.full(_ROW, ill_formed), columns.reshape(-1, _ROW)]))
    blocks = tail_of[1:].reshape(-1, _ROW)
    short = blocks[0].copy()  # after E0: what fits into two bytes must not take three
    short[: 0x800 // _ROW] = tail_of[0]
    middles, middle_of = _distinct(np.vstack([np.full(_ROW, tail_of[0]), short, blocks]))
    tops = np.full(5 * _ROW, middle_of[0])  # what fits into three bytes must not take four
    tops[16 : 16 + len(blocks) - 16] = middle_of[2 + 16 :]

    first_middle = 1 + len(tails)
    first_top = first_middle + len(middles)
    column = np.full((first_top + 5, 256), ill_formed, dtype=np.uint8)
    node = np.zeros(column.shape, dtype=np.uint32)
    column[0, :128], column[0, 128:] = columns[:128], column_of[SURROGATES.start]
    column[1:first_middle, 0x80:0xC0] = tails
    column[first_middle:, 0x80:0xC0] = INSIDE
    node[first_middle:first_top, 0x80:0xC0] = 1 + middles
    node[first_top:, 0x80:0xC0] = first_middle + tops.reshape(5, _ROW)
    column[0, 0xC2:0xF5] = INSIDE
    node[0, 0xC2:0xE0] = 1 + tail_of[1 + 2 : 1 + 32]
    node[0, 0xE0:0xF0] = first_middle + np.append(middle_of[1], middle_of[2 + 1 : 2 + 16])
    node[0, 0xF0:0xF5] = first_top + np.arange(5)
    return Decoder((node * 256).ravel(), column.ravel())


def _distinct(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find a table's distinct rows, in the order in which they come first, and which of them each row is."""
    rows = np.ascontiguousarray(table)
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    return np.frombuffer(b"".join(numbers), dtype=rows.dtype).reshape(len(numbers), -1), np.array(which)
