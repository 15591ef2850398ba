"""Cut a text where no piece can lie across.

Two neighbouring characters that stand side by side in no piece are in different pieces in every segmentation.
Which characters do is kept as bits, found by a hash of the bytes around the place: two pairs with one bit
cost a cut, never an id.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt64
from tokmill.tokenizer.kernels.cache import BLOCK

NUM_BITS = 1 << 20
_SHIFT = np.uint64(44)  # leaves 20 bits
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORD, _IN_WORD, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)
_CONTINUES, _TOP_TWO = 0x80, 0xC0


class Parts(NamedTuple):
    """The next parts of a text; shape (BLOCK,) each.

    Attributes:
        starts: where they begin.
        ends: where they end.
    """

    starts: Int64
    ends: Int64


def empty_parts() -> Parts:
    """Make room for a block of parts."""
    return Parts(*np.empty((2, BLOCK), np.int64))


@kernel(inline=True)
def continues(data: BytesIn, at: int) -> bool:
    """Whether a byte is not the first one of its character."""
    return bool(data[np.uint64(at)] & _TOP_TWO == _CONTINUES)


@kernel(inline=True)
def bit_of(data: BytesIn, start: int, at: int, end: int) -> np.uint64:
    """Return the bit of the characters before and after a place in `data[start:end]`.

    It is made of the last two bytes before the place and the first three after it, as far as they are in
    these characters; so that a piece and the text that it is found in have the same.
    """
    key = np.uint64(data[np.uint64(at - 1)]) << np.uint64(24)
    if at - 2 >= start and continues(data, at - 1):
        key |= np.uint64(data[np.uint64(at - 2)]) << np.uint64(32)
    key |= np.uint64(data[np.uint64(at)])
    if at + 1 < end and continues(data, at + 1):
        key |= np.uint64(data[np.uint64(at + 1)]) << np.uint64(8)
        if at + 2 < end and continues(data, at + 2):
            key |= np.uint64(data[np.uint64(at + 2)]) << np.uint64(16)
    return (key * _FACTOR) >> _SHIFT


@kernel
def mark_neighbours(data: BytesIn, offsets: Int64In, tokens: Int64In, bits: UInt64) -> None:
    """Set the bits of all neighbouring characters in pieces.

    Args:
        data: the bytes of all ids.
        offsets: shape (num_ids + 1,).
        tokens: the ids that are pieces.
        bits: shape (NUM_BITS / 64,); changed.
    """
    for k in range(tokens.shape[0]):
        start, end = offsets[tokens[k]], offsets[tokens[k] + 1]
        for at in range(start + 1, end):
            if not continues(data, at):
                bit = bit_of(data, start, at, end)
                bits[bit >> _WORD] |= _ONE << (bit & _IN_WORD)


@kernel(inline=True)
def cut_parts(data: BytesIn, start: int, first: int, end: int, bits: UInt64, parts: Parts) -> int:
    """List the parts of `data[start:end]` from the place `first` on, at most BLOCK; return their number."""
    number, begin, at = 0, first, first + 1
    while at < end and number < BLOCK:
        if not continues(data, at):
            bit = bit_of(data, start, at, end)
            if bits[bit >> _WORD] >> (bit & _IN_WORD) & _ONE == 0:
                parts.starts[number], parts.ends[number] = begin, at
                number, begin = number + 1, at
        at += 1
    if number < BLOCK:
        parts.starts[number], parts.ends[number] = begin, end
        number += 1
    return number
