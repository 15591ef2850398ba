"""Copy rows of stored tokens into a batch, converted to a wider type if needed, and mark their pieces."""

from typing import Any

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, Int32, Int32In, Int64, Int64In, UInt16, UInt16In, UInt32In


@kernel
def copy_rows(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: UInt16) -> None:
    """Copy `data[starts[k]:starts[k] + length]` to `out[places[k]:places[k] + length]` for every k."""
    for k in range(len(starts)):
        start = np.uint64(starts[k])
        place = np.uint64(places[k])
        for at in range(np.uint64(length)):
            out[place + at] = data[start + at]


COPIES: dict[tuple[int, int], Any] = {
    (2, 2): copy_rows,
    (2, 4): copy_rows.retyped({UInt16: Int32}),
    (2, 8): copy_rows.retyped({UInt16: Int64}),
    (4, 8): copy_rows.retyped({UInt16In: UInt32In, UInt16: Int64}),
}
"""By the item sizes of the source and the destination."""


@kernel
def mark(
    ends: Int32In, firsts: Int64In, length: int, segment_ids: Int32, position_ids: Int32, loss_mask: Bytes
) -> None:
    """Number the tokens of n rows, and mark those whose prediction counts.

    Args:
        ends: [p], where in its row each piece ends, row after row; rising within one, at most `length`.
        firsts: [n + 1], where each row's pieces begin in `ends`.
        length: tokens of each row.
        segment_ids: [n * length], or [0] if not wanted, written: the token's piece, from 1; 0 on padding.
        position_ids: the same, written: the token's place in its piece, from 0; 0 on padding.
        loss_mask: the same, written: 1 on tokens, 0 on the first token of a piece and on padding.
    """
    for row in range(len(firsts) - 1):
        base = row * length
        start = base
        for piece in range(firsts[row], firsts[row + 1]):
            stop = base + ends[piece]
            if len(segment_ids):
                _fill(segment_ids, start, stop, piece - firsts[row] + 1)
            if len(position_ids):
                for at in range(np.uint64(stop - start)):
                    position_ids[np.uint64(start) + at] = at
            if len(loss_mask):
                _fill(loss_mask, start, stop, 1)
                loss_mask[start] = 0
            start = stop
        stop = base + length
        if len(segment_ids):
            _fill(segment_ids, start, stop, 0)
        if len(position_ids):
            _fill(position_ids, start, stop, 0)
        if len(loss_mask):
            _fill(loss_mask, start, stop, 0)


@kernel(inline=True)
def _fill(out: Any, start: int, stop: int, value: int) -> None:
    for at in range(np.uint64(start), np.uint64(stop)):
        out[at] = value
