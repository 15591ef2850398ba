"""Which of two pairs a training joins first."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.kernels.pair_table import Pairs, Symbols

LIKELIHOOD, FREQUENCY, GREATEST_PAIR, LOWEST_SYMBOLS = 0, 1, 2, 3
"""Rules of which pair comes first: the greatest likelihood, then the greatest frequency; or that alone.

Of equal pairs that one comes first whose joined piece has the smaller bytes, then the one with the shorter
left part; by GREATEST_PAIR that with the greatest bytes of the left part, then of the right one; by
LOWEST_SYMBOLS that with the lowest left symbol, then the lowest right one.
"""

_NEAR = 1e-9  # floating point decides between scores that differ by more; integers decide between others
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel(inline=True)
def product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the upper and the lower 64 bits of a product of two words."""
    a_low, a_high, b_low, b_high = a & _LOWER, a >> _HALF, b & _LOWER, b >> _HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    other_middle = a_low * b_high + (middle & _LOWER)
    return a_high * b_high + (middle >> _HALF) + (other_middle >> _HALF), other_middle << _HALF | low & _LOWER


@kernel(inline=True)
def triple(one: int, two: int, three: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the 192 bits of a product of three numbers below 2^63, the highest first."""
    high, low = product(np.uint64(one), np.uint64(two))
    carried, lowest = product(low, np.uint64(three))
    highest, middle = product(high, np.uint64(three))
    middle += carried
    return highest + (np.uint64(1) if middle < carried else np.uint64(0)), middle, lowest


@kernel(inline=True)
def joined_byte(symbols: Symbols, left: int, right: int, i: int) -> int:
    """Return a byte of the piece that two symbols make; -1 behind its end."""
    at, end = symbols.at[left], symbols.end[left]
    if at + i < end:
        return np.int64(symbols.data[at + i])
    i += symbols.at[right] + symbols.mark - (end - at)
    return np.int64(symbols.data[i]) if i < symbols.end[right] else np.int64(-1)


@kernel
def comes_first(one: int, other: int, pairs: Pairs, symbols: Symbols) -> bool:
    """Whether a pair comes first: by its piece's size, then its bytes, then the length of its left part."""
    size = symbols.size
    difference = size[pairs.left[one]] + size[pairs.right[one]]
    difference -= size[pairs.left[other]] + size[pairs.right[other]]
    if difference != 0:
        return difference < 0
    i = 0
    while True:
        a = joined_byte(symbols, np.int64(pairs.left[one]), np.int64(pairs.right[one]), i)
        b = joined_byte(symbols, np.int64(pairs.left[other]), np.int64(pairs.right[other]), i)
        if a != b:
            return a < b
        if a < 0:
            break
        i += 1
    first, second = pairs.left[one], pairs.left[other]
    return symbols.end[first] - symbols.at[first] < symbols.end[second] - symbols.at[second]


@kernel(inline=True)
def compare_symbols(one: int, other: int, symbols: Symbols) -> int:
    """Compare the bytes of two symbols: below 0 if those of `one` are smaller, 0 if they are equal."""
    at, its = symbols.at[one], symbols.at[other]
    length, its_length = symbols.end[one] - at, symbols.end[other] - its
    for i in range(min(length, its_length)):
        if symbols.data[at + i] != symbols.data[its + i]:
            return np.int64(symbols.data[at + i]) - np.int64(symbols.data[its + i])
    return length - its_length


@kernel(inline=True)
def is_greater_pair(one: int, other: int, pairs: Pairs, symbols: Symbols) -> bool:
    """Whether a pair has the greater left part, by bytes, or the same one and the greater right part."""
    found = compare_symbols(np.int64(pairs.left[one]), np.int64(pairs.left[other]), symbols)
    if found == 0:
        found = compare_symbols(np.int64(pairs.right[one]), np.int64(pairs.right[other]), symbols)
    return found > 0


@kernel(inline=True)
def has_lower_symbols(one: int, other: int, pairs: Pairs) -> bool:
    """Whether a pair has a lower left symbol than another one, or the same and a lower right one."""
    if pairs.left[one] != pairs.left[other]:
        return pairs.left[one] < pairs.left[other]
    return pairs.right[one] < pairs.right[other]


@kernel
def is_better(one: int, other: int, pairs: Pairs, symbols: Symbols, rule: int) -> bool:
    """Whether a pair is joined before another one."""
    if rule == LIKELIHOOD:
        difference = pairs.score[one] - pairs.score[other]
        if abs(difference) > _NEAR * (pairs.score[one] + pairs.score[other]):
            return difference > 0
        f = symbols.frequency
        mine = triple(pairs.count[one], f[pairs.left[other]], f[pairs.right[other]])
        theirs = triple(pairs.count[other], f[pairs.left[one]], f[pairs.right[one]])
        if mine != theirs:
            return mine > theirs
    if pairs.count[one] != pairs.count[other]:
        return pairs.count[one] > pairs.count[other]
    if rule == GREATEST_PAIR:
        return is_greater_pair(one, other, pairs, symbols)
    if rule == LOWEST_SYMBOLS:
        return has_lower_symbols(one, other, pairs)
    return comes_first(one, other, pairs, symbols)


@kernel(inline=True)
def choose(one: int, other: int, pairs: Pairs, symbols: Symbols, rule: int) -> int:
    """Return the better of two pairs, either of which may be none (-1)."""
    if one < 0 or other < 0:
        return max(one, other)
    return one if is_better(one, other, pairs, symbols, rule) else other
