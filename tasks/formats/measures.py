"""Measures of text taken on whole buffers: is it UTF-8, how many characters, how many words.

A character is a Unicode code point: a byte that does not continue one. A word is a longest run of bytes
other than ASCII white space (space, tab, newline, vertical tab, form feed, carriage return), as Python's
`bytes.split()` has it. Words do not cross documents. Scripts written without spaces have long "words"; the
measure is for comparing corpora.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.formats.documents import Bytes, Ints, Piece
from tasks.formats.quarantine import BadDocument, invalid_utf8


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
    return len(data) - int(np.count_nonzero(data.view(np.int8) < -64))


def count_words(data: Bytes, offsets: Ints) -> int:
    """Count the words of each document and return the sum."""
    if not len(data):
        return 0
    inside = (data - np.uint8(9) > np.uint8(4)) & (data != np.uint8(32))
    begins = inside[1:] & ~inside[:-1]
    # A document that begins inside a word of the buffer begins a word of its own.
    starts = np.unique(offsets[:-1])
    starts = starts[(starts > 0) & (starts < len(data))]
    cut = np.count_nonzero(inside[starts] & inside[starts - 1])
    return int(np.count_nonzero(begins)) + int(inside[0]) + int(cut)


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
    broken = np.array(list(_invalid(piece.data, piece.offsets, 0, len(piece))), dtype=np.int64)
    bad = [_describe(piece, index) for index in broken.tolist()]
    keep = np.ones(len(piece), dtype=np.bool_)
    keep[broken] = False
    kept = piece.select(keep)
    return with_bad(kept, bad)


def with_bad(piece: Piece, bad: list[BadDocument]) -> Piece:
    """Return the piece with more bad documents, in row order."""
    together = sorted((*piece.bad, *bad), key=lambda one: one.row)
    return Piece(piece.data, piece.offsets, piece.rows, piece.bounds, piece.ids, tuple(together))


def _invalid(data: Bytes, offsets: Ints, start: int, stop: int) -> "list[int]":
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


def keep_mask(num: int, dropped: list[int]) -> NDArray[np.bool_]:
    """Return bool[num], false at `dropped`."""
    keep = np.ones(num, dtype=np.bool_)
    keep[dropped] = False
    return keep
