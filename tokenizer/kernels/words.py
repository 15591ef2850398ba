"""Short byte strings as two machine words, which compare in two steps; hashes, and random numbers.

A stream of random numbers (splitmix64) belongs to a seed, a string and its number in its document, so no
batching changes it. Source: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn
from tokmill.tokenizer.jit.intrinsics import load_u64

MAX_SHORT = 15
MAX_MIDDLE = 31

_LOW_MASKS = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(MAX_SHORT + 1)], np.uint64)
_HIGH_MASKS = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(MAX_SHORT + 1)], np.uint64)
_LENGTH_SHIFT = np.uint64(56)
_EIGHT = np.uint64(8)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_TOP_BITS = np.uint64(0x8080808080808080)

_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@kernel(inline=True)
def load_short(data: BytesIn, start: int, length: int) -> tuple[np.uint64, np.uint64]:
    """Read `length` bytes, at most MAX_SHORT; their number stands in the top byte of the second word."""
    low, high = np.uint64(0), np.uint64(0)
    if start + 16 <= data.shape[0]:
        low = load_u64(data, start) & _LOW_MASKS[np.uint64(length)]
        high = load_u64(data, start + 8) & _HIGH_MASKS[np.uint64(length)]
    else:
        for i in range(length - 1, -1, -1):
            if i >= 8:
                high = high << _EIGHT | np.uint64(data[start + i])
            else:
                low = low << _EIGHT | np.uint64(data[start + i])
    return low, high | np.uint64(length) << _LENGTH_SHIFT


@kernel(inline=True)
def narrow(low: np.uint64, high: np.uint64) -> bool:
    """Say whether what `load_short` read has no character of three bytes or more: none begins with 0b111."""
    wide = (low & low << _ONE & low << _TWO) | (high & high << _ONE & high << _TWO)
    return wide & _TOP_BITS == 0


@kernel(inline=True)
def hash_short(low: np.uint64, high: np.uint64) -> np.uint64:
    """Mix two words into one whose top bits are as good as random."""
    mixed = low * _FIRST ^ high * _SECOND
    return (mixed ^ mixed >> _HALF) * _LAST


@kernel(inline=True)
def load_middle(data: BytesIn, start: int, length: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Read `length` bytes, from 16 to MAX_MIDDLE; how many there are above 16 stands in the last top byte."""
    third, last = load_short(data, start + 16, length - 16)
    return load_u64(data, start), load_u64(data, start + 8), third, last


@kernel(inline=True)
def hash_middle(first: np.uint64, second: np.uint64, third: np.uint64, last: np.uint64) -> np.uint64:
    """Mix four words into one whose top bits are as good as random."""
    return hash_short(first + third * _LAST, second ^ last * _LAST)


@kernel(inline=True)
def hash_long(data: BytesIn, start: int, end: int) -> np.uint64:
    """Hash bytes of any number, eight at a time."""
    mixed = np.uint64(end - start) * _SECOND
    position = start
    while position < end:
        word = np.uint64(0)
        if position + 8 <= end:
            word = load_u64(data, position)
        else:
            for i in range(end - 1, position - 1, -1):
                word = word << _EIGHT | np.uint64(data[i])
        mixed = (mixed ^ word) * _FIRST
        mixed ^= mixed >> _HALF
        position += 8
    return mixed * _LAST


@kernel(inline=True)
def equal_bytes(first: BytesIn, first_start: int, second: BytesIn, second_start: int, length: int) -> bool:
    """Compare two stretches of bytes."""
    for i in range(length):
        if first[first_start + i] != second[second_start + i]:
            return False
    return True


STEP = np.uint64(0x9E3779B97F4A7C15)
"""Added to a state before each number; the sum wraps."""

_MIX, _MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _ELEVEN = (np.uint64(bits) for bits in (30, 27, 31, 11))
_UNIT = 1.0 / (1 << 53)


@kernel(inline=True)
def mixed(word: np.uint64) -> np.uint64:
    """Mix a word's bits (splitmix64); the product wraps."""
    word = (word ^ word >> _THIRTY) * _MIX
    word = (word ^ word >> _TWENTY_SEVEN) * _MIX_AGAIN
    return word ^ word >> _THIRTY_ONE


@kernel(inline=True)
def first_state(seed: np.uint64, data: BytesIn, start: int, end: int, number: int) -> np.uint64:
    """Return the state before the first number of a string that has a number in its document."""
    return mixed(seed ^ mixed(hash_long(data, start, end) + np.uint64(number)))


@kernel(inline=True)
def unit_of(state: np.uint64) -> float:
    """Return a state's number: a multiple of 2**-53, at least 0 and below 1."""
    return np.float64(mixed(state) >> _ELEVEN) * _UNIT
