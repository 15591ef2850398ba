"""Copy rows of stored tokens into a batch, and convert them to a wider type if needed."""

from typing import Any

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, Int32, Int32In, Int64, Int64In, UInt16, UInt16In, UInt32In


@kernel
def copy_16_to_16(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: UInt16) -> None:
    """Copy `data[starts[k]:starts[k] + length]` to `out[places[k]:places[k] + length]` for every k.

    Args:
        data: uint16 [n].
        starts: int64 [r], in values.
        places: int64 [r], in values.
        length: values per row; each range must lie within `data` and `out`, which is not checked here.
        out: [m], written.
    """
    _copy(data, starts, places, length, out)


@kernel
def copy_16_to_32(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: Int32) -> None:
    """The same into int32."""
    _copy(data, starts, places, length, out)


@kernel
def copy_16_to_64(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: Int64) -> None:
    """The same into int64."""
    _copy(data, starts, places, length, out)


@kernel
def copy_32_to_64(data: UInt32In, starts: Int64In, places: Int64In, length: int, out: Int64) -> None:
    """The same from uint32 into int64."""
    _copy(data, starts, places, length, out)


@kernel(inline=True)
def _copy(data: Any, starts: Any, places: Any, length: int, out: Any) -> None:
    for k in range(len(starts)):
        start = np.uint64(starts[k])
        place = np.uint64(places[k])
        for at in range(np.uint64(length)):
            out[place + at] = data[start + at]


@kernel
def mark(
    ends: Int32In,
    firsts: Int64In,
    sequence_length: int,
    segment_ids: Int32,
    position_ids: Int32,
    loss_mask: Bytes,
) -> None:
    """Fill the output arrays, except those of length 0.

    Args:
        ends: int32 [p], where in its sequence each piece ends, sequence after sequence; rising within one.
        firsts: int64 [n + 1], where each sequence's pieces begin in `ends`.
        sequence_length: tokens of each sequence, at least its last end, which is not checked here.
        segment_ids: int32 [n * sequence_length] or [0], written: the token's piece, from 1; 0 on padding.
        position_ids: the same, written: the token's place in its piece, from 0; 0 on padding.
        loss_mask: uint8, the same, written: 1 on tokens, 0 on the first token of a piece and on padding.
    """
    for row in range(len(firsts) - 1):
        base = row * sequence_length
        start = base
        for piece in range(firsts[row], firsts[row + 1]):
            stop = base + ends[piece]
            if len(segment_ids):
                _fill(segment_ids, start, stop, piece - firsts[row] + 1)
            if len(position_ids):
                _count(position_ids, start, stop)
            if len(loss_mask):
                _fill(loss_mask, start, stop, 1)
                loss_mask[start] = 0
            start = stop
        stop = base + sequence_length
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


@kernel(inline=True)
def _count(out: Any, start: int, stop: int) -> None:
    for at in range(np.uint64(stop - start)):
        out[np.uint64(start) + at] = at
