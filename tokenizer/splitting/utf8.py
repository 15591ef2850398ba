"""A decoder for UTF-8 that yields classes of characters, as a table of one step a byte.

Nodes are what is known after some bytes of a character; node 0 is its beginning. A byte leads to a node and
yields a column: `INSIDE` while the character goes on, its class's column on its last byte, `ILL_FORMED` where
the bytes since the character's beginning cannot belong together. Nodes with equal tables are one node.
Source: the Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenizer.splitting.charsets import SURROGATES

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
    lone = column_of[SURROGATES.start]
    columns = column_of.copy()
    columns[SURROGATES] = ill_formed
    broken = np.full((1, _ROW), ill_formed, dtype=np.uint8)
    tails, tail_of = np.unique(
        np.concatenate([broken, columns.reshape(-1, _ROW)]), axis=0, return_inverse=True
    )
    broken_tail, tail_of = int(tail_of.ravel()[0]), tail_of.ravel()[1:]
    blocks = tail_of.reshape(-1, _ROW).copy()
    short_block = blocks[:1].copy()  # E0: what fits into two bytes must not take three
    short_block[0, : 0x800 // _ROW] = broken_tail
    broken_block = np.full((1, _ROW), broken_tail)
    middles, middle_of = np.unique(
        np.concatenate([broken_block, short_block, blocks]), axis=0, return_inverse=True
    )
    middle_of = middle_of.ravel()
    table = _Table(1 + len(tails) + len(middles) + 5, ill_formed)
    table.continue_with(1, columns=tails)
    table.continue_with(1 + len(tails), nodes=1 + middles)
    three_bytes = np.concatenate([middle_of[1:2], middle_of[3:18]])
    four_bytes = np.full(5 * _ROW, middle_of[0])
    four_bytes[16 : 16 + 256] = middle_of[18:]
    tops = 1 + len(tails) + len(middles)
    table.continue_with(tops, nodes=1 + len(tails) + four_bytes.reshape(5, _ROW))
    root = table.column[0], table.node[0]
    root[0][:128], root[0][128:] = columns[:128], lone
    for first, targets in (
        (0xC2, 1 + tail_of[2:32]),
        (0xE0, 1 + len(tails) + three_bytes),
        (0xF0, tops + np.arange(5)),
    ):
        root[0][first : first + len(targets)] = INSIDE
        root[1][first : first + len(targets)] = targets
    return Decoder((table.node * 256).ravel().astype(np.uint32), table.column.ravel())


class _Table:
    """Rows of 256: what each byte yields, and where it leads."""

    def __init__(self, num_nodes: int, ill_formed: int) -> None:
        self.column = np.full((num_nodes, 256), ill_formed, dtype=np.uint8)
        self.node = np.zeros((num_nodes, 256), dtype=np.int64)

    def continue_with(
        self, first: int, columns: NDArray[np.uint8] | None = None, nodes: NDArray[np.int64] | None = None
    ) -> None:
        """Fill the rows from `first` on for the continuation bytes 0x80 to 0xBF."""
        if columns is not None:
            self.column[first : first + len(columns), 0x80:0xC0] = columns
        if nodes is not None:
            self.column[first : first + len(nodes), 0x80:0xC0] = INSIDE
            self.node[first : first + len(nodes), 0x80:0xC0] = nodes
