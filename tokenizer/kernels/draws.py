"""Random numbers that depend on a seed and on what they are drawn for, and on nothing else.

A stream belongs to a seed, to a string and to its number in its document, so no batching changes it. Its
states count up by a constant, and each gives one number (splitmix64), by integers alone: the same on every
machine.

Source: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn
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
