"""Copy ranges of bytes or rows of tokens to their places, mark pieces, count tokens, hash documents.

The hash decides where shards end and identifies nothing, so it is fast on whole buffers and evenly
distributed, but not cryptographic: each word of eight bytes, the last one padded with zeros, is mixed with
its index, and the sum with the length.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import (
    Bytes,
    BytesIn,
    Int32,
    Int32In,
    Int64,
    Int64In,
    UInt16,
    UInt16In,
    UInt32In,
    UInt64,
)
from tokmill.tokenizer.jit.intrinsics import load_u64

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)


@kernel
def gather(data: BytesIn, starts: Int64In, lengths: Int64In, places: Int64In, out: Bytes) -> None:
    """Copy `data[starts[k]:][:lengths[k]]` to `out[places[k]:][:lengths[k]]` for every k."""
    for k in range(len(starts)):
        # Unsigned indices need no check for negative values, so that the copy is vectorized.
        start = np.uint64(starts[k])
        place = np.uint64(places[k])
        for byte in range(np.uint64(lengths[k])):
            out[place + np.uint64(byte)] = data[start + np.uint64(byte)]


@kernel
def count_narrow(ids: UInt16In, counts: UInt64) -> int:
    """Add one to `counts[id]` for every id of n, up to the first that is not in the vocabulary.

    Returns the position of that id, or n.
    """
    for position in range(ids.shape[0]):
        if ids[position] >= counts.shape[0]:
            return position
        counts[ids[position]] += np.uint64(1)
    return ids.shape[0]


count_wide = count_narrow.retyped({UInt16In: UInt32In})


@kernel
def hash_documents(data: BytesIn, offsets: Int64In, longest: int, hashes: UInt64) -> None:
    """Hash d documents, into `hashes` [d], that have at most `longest` bytes; others are skipped."""
    for document in range(offsets.shape[0] - 1):
        start, end = offsets[document], offsets[document + 1]
        if end - start > longest:
            continue
        whole = (end - start) >> 3
        total, number = np.uint64(0), np.uint64(0)
        for word in range(whole):
            total += _mixed(load_u64(data, start + 8 * word) + number)
            number += _GOLDEN
        if start + 8 * whole < end:
            last = np.uint64(0)
            for position in range(start + 8 * whole, end):
                last |= np.uint64(data[position]) << np.uint64(8 * (position - start - 8 * whole))
            total += _mixed(last + number)
        hashes[document] = _mixed(total ^ _mixed(np.uint64(end - start)))


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele et al. 2014) of each value: every bit depends on all bits of the value."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


@kernel(inline=True)
def _mixed(value: np.uint64) -> np.uint64:
    """The same of one value."""
    value += _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


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
    ends: Int32In,
    firsts: Int64In,
    length: int,
    segment_ids: Int32,
    position_ids: Int32,
    loss_mask: Bytes,
    labels: Int64,
    ignored: int,
) -> None:
    """Number the tokens of n rows, and mark those whose prediction counts.

    Args:
        ends: [p], where in its row each piece ends, row after row; rising within one, at most `length`.
        firsts: [n + 1], where each row's pieces begin in `ends`.
        length: tokens of each row.
        segment_ids: [n * length], or [0] if not wanted, written: the token's piece, from 1; 0 on padding.
        position_ids: the same, written: the token's place in its piece, from 0; 0 on padding.
        loss_mask: the same, written: 1 on tokens, 0 on the first token of a piece and on padding.
        labels: the same, but holds the tokens already; overwritten where `loss_mask` is 0.
        ignored: what labels are there.
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
            if len(labels):
                labels[start] = ignored
            start = stop
        stop = base + length
        if len(segment_ids):
            _fill(segment_ids, start, stop, 0)
        if len(position_ids):
            _fill(position_ids, start, stop, 0)
        if len(loss_mask):
            _fill(loss_mask, start, stop, 0)
        if len(labels):
            _fill(labels, start, stop, ignored)


@kernel(inline=True)
def _fill(out: Any, start: int, stop: int, value: int) -> None:
    for at in range(np.uint64(start), np.uint64(stop)):
        out[at] = value
