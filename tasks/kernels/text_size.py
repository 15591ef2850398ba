"""The size of text in bytes, characters and words.

A character is a byte that is not a continuation byte. A word is a longest run of characters other than white
space (the 25 with the property White_Space, the same in all versions of Unicode), within a document.

Words are first counted by ASCII white space, eight bytes at a time, without branches: each byte is tested by
arithmetic without carries, and results are added up per byte for up to 255 steps. Then the count is corrected
at each other white space, which has two or three bytes.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, Int64Table
from tokmill.tokenizer.jit.intrinsics import load_u64

_HIGH_BITS = np.uint64(0x8080808080808080)
_OTHER_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_SPACES = np.uint64(0x2020202020202020)
# Added to a byte below 128, these set its high bit if it is at least 9, or at least 14.
_FROM_9 = np.uint64(0x7777777777777777)
_FROM_14 = np.uint64(0x7272727272727272)
_EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
_EACH_PAIR = np.uint64(0x0001000100010001)
_MOST_STEPS = 255
_EACH_BYTE, _C2, _E1, _E2, _E3, _80, _9A, _EVEN_NUMBERS = (
    np.uint64(byte * 0x0101010101010101) for byte in (0x01, 0xC2, 0xE1, 0xE2, 0xE3, 0x80, 0x9A, 0xFE)
)


class TextSize(NamedTuple):
    """Size of text: bytes, characters, words."""

    num_documents: int
    num_bytes: int
    num_chars: int
    num_words: int

    def plus(self, other: "TextSize") -> "TextSize":
        """Return the sum of both."""
        return TextSize(*(mine + its for mine, its in zip(self, other, strict=True)))


def text_size(data: Bytes, offsets: Int64) -> TextSize:
    """Return the size of the documents `data[offsets[i]:offsets[i + 1]]`, valid UTF-8."""
    sums = np.zeros(2, dtype=np.int64)
    count_text(np.ascontiguousarray(data), np.ascontiguousarray(offsets), sums)
    return TextSize(len(offsets) - 1, len(data), int(sums[0]), int(sums[1]))


def document_sizes(data: Bytes, offsets: Int64) -> tuple[Int64, Int64]:
    """Return the characters and the words of each document, int64 [d] each."""
    sizes = np.zeros((len(offsets) - 1, 2), dtype=np.int64)
    bounds = np.zeros(2, dtype=np.int64)
    count_documents(np.ascontiguousarray(data), np.ascontiguousarray(offsets), bounds, sizes)
    return sizes[:, 0], sizes[:, 1]


@kernel
def count_documents(data: BytesIn, offsets: Int64In, bounds: Int64, sizes: Int64Table) -> None:
    """Count the characters and words of each document, [d, 2], as `count_text` does; `bounds` [2] are 0."""
    for document in range(offsets.shape[0] - 1):
        text = data[offsets[document] : offsets[document + 1]]
        bounds[1] = text.shape[0]
        count_text(text, bounds, sizes[document])


@kernel
def count_text(data: BytesIn, offsets: Int64In, sums: Int64) -> None:
    """Add the characters and words of documents, between `offsets` of valid UTF-8, to `sums` [2]."""
    size = data.shape[0]
    continuing, words, position = 0, 0, 1
    while position + 8 <= size:
        steps = min((size - position) >> 3, _MOST_STEPS)
        parts, begins = np.uint64(0), np.uint64(0)
        for step in range(steps):
            here = load_u64(data, position + 8 * step)
            before = load_u64(data, position + 8 * step - 1)
            parts += (here & ~(here << np.uint64(1)) & _HIGH_BITS) >> np.uint64(7)
            begins += (~_spaces(here) & _spaces(before)) >> np.uint64(7)
        continuing += _sum_of_bytes(parts)
        words += _sum_of_bytes(begins)
        position += 8 * steps
    for rest in range(position, size):
        continuing += int(data[rest] & 0xC0 == 0x80)
        words += int(not _is_space(data[rest]) and _is_space(data[rest - 1]))
    for document in range(offsets.shape[0] - 1):
        start = offsets[document]
        if start < offsets[document + 1] and not _is_space(data[start]):
            words += int(start == 0 or not _is_space(data[start - 1]))  # not counted yet: no space before it
    sums[0] += size - continuing
    sums[1] += words + _correction(data, offsets)


@kernel(inline=True)
def _spaces(word: np.uint64) -> np.uint64:
    """Test each byte for ASCII white space: 9 to 13, or 32."""
    low = word & _OTHER_BITS
    control = (low + _FROM_9) & ~(low + _FROM_14)
    space = ~((low ^ _SPACES) + _OTHER_BITS)
    return (control | space) & ~word & _HIGH_BITS


@kernel(inline=True)
def _is_space(byte: int) -> bool:
    return byte == 0x20 or 0x09 <= byte <= 0x0D


@kernel(inline=True)
def _wide_space(data: BytesIn, at: int) -> int:
    """Size of the non-ASCII white space that begins here: 2 or 3 bytes, or 0 if there is none."""
    first = data[at]
    if first == 0xC2:  # U+0085, U+00A0
        return 2 if data[at + 1] == 0x85 or data[at + 1] == 0xA0 else 0
    if first < 0xE1 or first > 0xE3:
        return 0
    second, third = data[at + 1], data[at + 2]
    if first == 0xE1:  # U+1680
        return 3 if second == 0x9A and third == 0x80 else 0
    if first == 0xE3:  # U+3000
        return 3 if second == 0x80 and third == 0x80 else 0
    if second == 0x80:  # U+2000 to U+200A, U+2028, U+2029, U+202F
        wide = third <= 0x8A or 0xA8 <= third <= 0xA9 or third == 0xAF
        return 3 if wide else 0
    return 3 if second == 0x81 and third == 0x9F else 0  # U+205F


@kernel(inline=True)
def _wide_marks(data: BytesIn, at: int) -> np.uint64:
    """Mark the bytes, of eight, at which other white space may begin."""
    first = load_u64(data, at)
    if not first & _HIGH_BITS:
        return np.uint64(0)
    second, third = load_u64(data, at + 1), load_u64(data, at + 2)
    marks = _zeros(first ^ _C2) | _zeros((first ^ _E1) | (second ^ _9A))
    marks |= _zeros((first ^ _E2) | ((second ^ _80) & _EVEN_NUMBERS))
    return marks | _zeros((first ^ _E3) | (second ^ _80) | (third ^ _80))


@kernel(inline=True)
def _zeros(word: np.uint64) -> np.uint64:
    """Mark the bytes that are 0."""
    return ~(((word & _OTHER_BITS) + _OTHER_BITS) | word) & _HIGH_BITS


@kernel(inline=True)
def _correction(data: BytesIn, offsets: Int64In) -> int:
    """The number of words minus the count by ASCII white space; often negative."""
    size, words, document, position = data.shape[0], 0, 0, np.int64(0)
    while position < size:
        if position + 10 <= size:
            marks = _wide_marks(data, position)
            if not marks:
                position += 8
                continue
            upto = (marks - np.uint64(1)) & ~marks & _EACH_BYTE
            position += np.int64((upto * _EACH_BYTE) >> np.uint64(56)) - 1
        width = _wide_space(data, position) if data[position] >= 0xC2 else 0
        if width:
            while offsets[document + 1] <= position:
                document += 1
            # here no word begins, though one was counted; after the white space one begins
            words -= np.int64(position == offsets[document] or _is_space(data[position - 1]))
            after = position + width
            words += int(
                after < offsets[document + 1] and not _is_space(data[after]) and not _wide_space(data, after)
            )
        position += max(1, width)
    return words


@kernel(inline=True)
def _sum_of_bytes(word: np.uint64) -> int:
    pairs = (word & _EVEN_BYTES) + ((word >> np.uint64(8)) & _EVEN_BYTES)
    return np.int64((pairs * _EACH_PAIR) >> np.uint64(48))
