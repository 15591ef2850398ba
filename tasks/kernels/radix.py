"""Radix sort of 64-bit keys, by digits of 11 bits, lowest first."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, UInt32, UInt64

_BITS = 11
_DIGITS = 6
_SIZE = 1 << _BITS


def order_of(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The stable order of ascending keys, fewer than 2^32, which are overwritten.

    Returns uint32 [n], as a stable `argsort` gives it. O(n) time; 16 bytes per key besides the result.
    """
    size = len(keys)
    order = np.arange(size, dtype=np.uint32)
    starts = np.zeros(_DIGITS * _SIZE, dtype=np.int64)
    spare_keys, spare = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint32)
    return spare if sort_digits(keys, order, spare_keys, spare, starts) % 2 else order


@kernel
def sort_digits(keys: UInt64, order: UInt32, spare_keys: UInt64, spare: UInt32, starts: Int64) -> int:
    """Sort `keys` and, along with them, `order`; the passes alternate between these and the spare arrays.

    `starts` [6 × 2048] are zeros. Returns the number of passes: if it is even, the result is in `order`.
    """
    _count(keys, starts)
    moves = 0
    for digit in range(_DIGITS):
        shift = np.uint64(digit * _BITS)
        if starts[digit * _SIZE] < 0:  # all keys share this digit
            continue
        if moves % 2 == 0:
            _move(keys, order, spare_keys, spare, starts, shift, digit * _SIZE)
        else:
            _move(spare_keys, spare, keys, order, starts, shift, digit * _SIZE)
        moves += 1
    return moves


@kernel(inline=True)
def _count(keys: UInt64, starts: Int64) -> None:
    """Compute where the keys with each value of a digit begin; the first is -1 if all have the same value."""
    for key in keys:
        for digit in range(_DIGITS):
            value = (key >> np.uint64(digit * _BITS)) & np.uint64(_SIZE - 1)
            starts[digit * _SIZE + np.int64(value)] += 1
    for digit in range(_DIGITS):
        total = 0
        same = False
        for value in range(digit * _SIZE, (digit + 1) * _SIZE):
            count = starts[value]
            same = same or count == len(keys)
            starts[value] = total
            total += count
        if same:
            starts[digit * _SIZE] = -1


@kernel(inline=True)
def _move(
    keys: UInt64, order: UInt32, out_keys: UInt64, out: UInt32, starts: Int64, shift: np.uint64, base: int
) -> None:
    """Sort keys by one digit, stably."""
    for k in range(len(keys)):
        at = base + np.int64((keys[k] >> shift) & np.uint64(_SIZE - 1))
        place = starts[at]
        starts[at] = place + 1
        out_keys[place] = keys[k]
        out[place] = order[k]
