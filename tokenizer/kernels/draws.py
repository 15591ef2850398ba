"""Random numbers that depend on a seed and on what they are drawn for; and BPE-dropout, which draws them.

A stream (splitmix64) belongs to a seed, a string and its number in its document, so no batching changes it.
At each step of dropout every place that a merge could join is left out with a probability, and of the others
the one of the lowest rank, the leftmost first, is joined. Sources: Steele, Lea and Flood 2014, "Fast
Splittable Pseudorandom Number Generators"; Provilkov, Emelianenko and Voita 2020, "BPE-Dropout".
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, UInt64
from tokmill.tokenizer.kernels.merges import (
    POSITION_BITS,
    POSITION_MASK,
    PairTables,
    Scratch,
    join_and_push,
    push_merges,
    sift_down,
    sift_up,
)
from tokmill.tokenizer.kernels.words import hash_long

STEP = np.uint64(0x9E3779B97F4A7C15)
"""Added to a state before each number; the sum wraps."""

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _ELEVEN = (np.uint64(bits) for bits in (30, 27, 31, 11))
_UNIT = 1.0 / (1 << 53)


@kernel(inline=True)
def mixed(word: np.uint64) -> np.uint64:
    """Mix a word's bits (splitmix64); the product wraps."""
    word = (word ^ word >> _THIRTY) * _FIRST
    word = (word ^ word >> _TWENTY_SEVEN) * _SECOND
    return word ^ word >> _THIRTY_ONE


@kernel(inline=True)
def first_state(seed: np.uint64, data: BytesIn, start: int, end: int, number: int) -> np.uint64:
    """Return the state before the first number of a string that has a number in its document."""
    return mixed(seed ^ mixed(hash_long(data, start, end) + np.uint64(number)))


@kernel(inline=True)
def unit_of(state: np.uint64) -> float:
    """Return a state's number: a multiple of 2**-53, at least 0 and below 1."""
    return np.float64(mixed(state) >> _ELEVEN) * _UNIT


_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel(inline=True)
def pop_merge(scratch: Scratch, size: int) -> tuple[np.uint64, int]:
    """Take the first merge that is still possible off a heap; return it, or _NONE, and the new size."""
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        if scratch.ranks[np.int64(top & POSITION_MASK)] == np.uint32(top >> POSITION_BITS):
            return top, size
    return _NONE, size


@kernel(inline=True)
def merge_with_dropout(
    length: int, tables: PairTables, scratch: Scratch, left_out: UInt64, dropout: float, state: np.uint64
) -> None:
    """Merge symbols that were set up, as the module describes; `left_out` is scratch, one per symbol."""
    size = push_merges(length, scratch)
    while True:
        number = 0
        chosen, size = pop_merge(scratch, size)
        while chosen != _NONE:
            state += STEP
            if unit_of(state) >= dropout:
                break
            left_out[number] = chosen
            number += 1
            chosen, size = pop_merge(scratch, size)
        if chosen == _NONE:
            break
        for k in range(number):
            sift_up(scratch.heap, size, left_out[k])
            size += 1
        size = join_and_push(chosen, length, size, tables, scratch)
