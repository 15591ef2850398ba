"""Characters of UTF-8, and the words of pre-tokens: runs of characters that are not white space."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In
from tokmill.tokenizer.jit.intrinsics import load_u64

_FIRST_VISIBLE, _UPPER_BITS = np.uint64(0x2121212121212121), np.uint64(0x8080808080808080)
_SKIPPED = np.ones(256, np.uint8)
_SKIPPED[[*range(9, 14), 0x20, 0xC2, 0xE1, 0xE2, 0xE3]] = 0
"""Of each byte, whether no white space begins with it."""


@kernel(inline=True)
def white_space(data: BytesIn, at: int, end: int) -> int:
    """Return the number of bytes of the white-space character at `at` (White_Space); 0 if it is another."""
    byte = data[at]
    if byte < 0x80:
        return 1 if byte == 0x20 or 9 <= byte <= 13 else 0
    if byte == 0xC2 and at + 1 < end:
        return 2 if data[at + 1] == 0x85 or data[at + 1] == 0xA0 else 0
    if byte < 0xE1 or byte > 0xE3 or at + 2 >= end:
        return 0
    middle, last = data[at + 1], data[at + 2]
    if byte == 0xE1:
        found = middle == 0x9A and last == 0x80
    elif byte == 0xE2:
        found = middle == 0x80 and (last <= 0x8A or last == 0xA8 or last == 0xA9 or last == 0xAF)
        found = found or (middle == 0x81 and last == 0x9F)
    else:
        found = middle == 0x80 and last == 0x80
    return 3 if found else 0


@kernel(inline=True)
def num_plain(data: BytesIn, at: int, end: int) -> int:
    """Return the number of the next bytes, at most eight, if all are ASCII above the space; else 0."""
    size = min(end - at, 8)
    if size == 0 or at + 8 > data.shape[0]:
        return 0
    text = load_u64(data, at)
    # a byte below "!" borrows from those above it, and so can make them look like others, but none below it
    others = ((text - _FIRST_VISIBLE) | text) & _UPPER_BITS
    return size if others << np.uint64(64 - 8 * size) == 0 else 0


@kernel
def find_words(
    data: BytesIn, starts: Int64In, ends: Int64In, word_starts: Int64, word_ends: Int64, firsts: Int64
) -> int:
    """Find the words of pre-tokens; return the number of words."""
    number = 0
    for pretoken in range(starts.shape[0]):
        firsts[pretoken] = number
        at, end = starts[pretoken], ends[pretoken]
        begin = at
        at += num_plain(data, at, end)
        while at < end:
            if _SKIPPED[data[np.uint64(at)]]:
                at += 1
                continue
            space = white_space(data, at, end)
            if space > 0:
                if begin < at:
                    word_starts[number], word_ends[number] = begin, at
                    number += 1
                at += space
                begin = at
            else:
                at += 1
        if begin < end:
            word_starts[number], word_ends[number] = begin, end
            number += 1
    firsts[starts.shape[0]] = number
    return number


UNKNOWN_CHARACTER = -1
_CONTINUES, _TOP_TWO = 0x80, 0xC0
_LEAST_POINT = np.array([0, 0, 0x80, 0x800, 0x10000], np.int64)


@kernel(inline=True)
def read_character(data: BytesIn, at: int, end: int) -> tuple[int, int]:
    """Return a character's code point, -1 if it is not UTF-8, and where the next one begins."""
    first, after = np.int64(data[at]), at + 1
    while after < end and data[after] & _TOP_TWO == _CONTINUES:
        after += 1
    size = after - at
    if first < 0x80 and size == 1:
        return first, after
    if size < 2 or size > 4 or first >> (7 - size) != (1 << size + 1) - 2:
        return UNKNOWN_CHARACTER, after
    point = first & (0x3F >> size - 1)
    for i in range(at + 1, after):
        point = point << 6 | (np.int64(data[i]) & 0x3F)
    return (point if _LEAST_POINT[size] <= point < 0x110000 else UNKNOWN_CHARACTER), after


@kernel(inline=True)
def continues(data: BytesIn, at: int) -> bool:
    """Whether a byte is not the first one of its character."""
    return bool(data[np.uint64(at)] & _TOP_TWO == _CONTINUES)


@kernel(inline=True)
def next_character(data: BytesIn, at: int, end: int) -> int:
    """Return where a character ends, at most at `end`: a byte, and the continuation bytes after it."""
    at += 1
    while at < end and continues(data, at):
        at += 1
    return at


@kernel(inline=True)
def count_characters(data: BytesIn, start: int, end: int) -> int:
    """Count the characters of a text: the bytes that continue none."""
    number = 0
    for at in range(start, end):
        number += 0 if continues(data, at) else 1
    return number
