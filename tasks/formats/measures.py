"""Measures of text taken on whole buffers: is it UTF-8, how many characters, how many words.

A character is a Unicode code point: a byte that does not continue one. A word is a longest run of bytes
other than ASCII white space (space, tab, newline, vertical tab, form feed, carriage return), as Python's
`bytes.split()` has it. Words do not cross documents. Scripts written without spaces have long "words"; the
measure is for comparing corpora.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tasks.formats.documents import Bytes, Ints, Piece
from tasks.formats.quarantine import BadDocument, invalid_utf8

# Passes over more than this fall out of the processor's cache.
_CACHED_BYTES = 256 << 10


class TextSize(NamedTuple):
    """How much text there is."""

    num_documents: int
    num_bytes: int
    num_chars: int
    num_words: int

    def plus(self, other: "TextSize") -> "TextSize":
        """Return the sum of both."""
        return TextSize(*(mine + its for mine, its in zip(self, other, strict=True)))


def text_size(data: Bytes, offsets: Ints) -> TextSize:
    """Return the size of the documents `data[offsets[i]:offsets[i + 1]]`, valid UTF-8."""
    return TextSize(len(offsets) - 1, len(data), count_chars(data), count_words(data, offsets))


def count_chars(data: Bytes) -> int:
    """Count the code points of valid UTF-8."""
    # Continuation bytes are 0x80 to 0xbf, which are the smallest as signed bytes.
    signed = data.view(np.int8)
    parts = (signed[at : at + _CACHED_BYTES] for at in range(0, len(data), _CACHED_BYTES))
    return len(data) - sum(int(np.count_nonzero(part < -64)) for part in parts)


def count_words(data: Bytes, offsets: Ints) -> int:
    """Count the words of each document and return the sum."""
    begins = np.empty(len(offsets), dtype=np.bool_)
    begins[:-1] = offsets[:-1] < offsets[1:]  # an empty document begins no word
    begins[-1] = False
    starts = offsets[begins]
    total = 0
    for at in range(0, len(data), _CACHED_BYTES):
        stop = at + _CACHED_BYTES
        first, last = np.searchsorted(starts, (at, stop))
        total += _word_starts(data[max(0, at - 1) : stop], starts[first:last] - max(0, at - 1), at > 0)
    return total


def _word_starts(data: Bytes, starts: Ints, follows: bool) -> int:
    """Count where words begin; the first byte only shows what was before if `follows`."""
    inside = (data - np.uint8(9) > np.uint8(4)) & (data != np.uint8(32))
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    begins[starts] = inside[starts]  # a document that begins inside a word of the buffer begins its own
    return int(np.count_nonzero(begins)) - int(follows and begins[0])


def is_utf8(data: Bytes, offsets: Ints) -> bool:
    """Whether every document by itself is valid UTF-8 (no surrogates, no overlong forms)."""
    buffers = (pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data)))
    try:
        pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def without_invalid_utf8(piece: Piece) -> Piece:
    """Return the piece with the documents that are not UTF-8 moved to its bad ones."""
    if is_utf8(piece.data, piece.offsets):
        return piece
    broken = _invalid(piece.data, piece.offsets, 0, len(piece))
    keep = np.ones(len(piece), dtype=np.bool_)
    keep[broken] = False
    bad = sorted((*piece.bad, *(_describe(piece, index) for index in broken)), key=lambda one: one.row)
    return replace(piece.select(keep), bad=tuple(bad))


def _invalid(data: Bytes, offsets: Ints, start: int, stop: int) -> list[int]:
    """Find the invalid documents of `start:stop` by halving; cheap where they are few."""
    if start == stop or is_utf8(data, offsets[start : stop + 1]):
        return []
    if stop - start == 1:
        return [start]
    middle = (start + stop) // 2
    return _invalid(data, offsets, start, middle) + _invalid(data, offsets, middle, stop)


def _describe(piece: Piece, index: int) -> BadDocument:
    document = piece.data[piece.offsets[index] : piece.offsets[index + 1]].tobytes()
    return invalid_utf8(int(piece.rows[index]), document)
