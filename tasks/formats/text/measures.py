"""Measure text in whole buffers: validity as UTF-8, characters, words.

A character is a Unicode code point: a byte that is not a continuation byte. A word is a longest run of
characters other than white space: the 25 characters of Unicode's property White_Space, ideographic and
no-break spaces among them. Words do not cross documents. Scripts written without spaces have long "words";
the measure is for comparing corpora.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.tasks.formats.text.documents import Bytes, FileBatch, Ints
from tokmill.tasks.formats.text.quarantine import BadDocument, invalid_utf8, too_long
from tokmill.tasks.kernels.text_size import count_text


class TextSize(NamedTuple):
    """Size of text: bytes, characters, words."""

    num_documents: int
    num_bytes: int
    num_chars: int
    num_words: int

    def plus(self, other: "TextSize") -> "TextSize":
        """Return the sum of both."""
        return TextSize(*(mine + its for mine, its in zip(self, other, strict=True)))


def text_size(data: Bytes, offsets: Ints) -> TextSize:
    """Return the size of the documents `data[offsets[i]:offsets[i + 1]]`, valid UTF-8."""
    sums = np.zeros(2, dtype=np.int64)
    count_text(np.ascontiguousarray(data), np.ascontiguousarray(offsets), sums)
    return TextSize(len(offsets) - 1, len(data), int(sums[0]), int(sums[1]))


def is_utf8(data: Bytes, offsets: Ints) -> bool:
    """Whether every document by itself is valid UTF-8 (no surrogates, no overlong forms)."""
    buffers = (pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data)))
    try:
        pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def without_invalid_utf8(batch: FileBatch) -> FileBatch:
    """Return the batch with the documents that are not UTF-8 moved to its bad ones."""
    if is_utf8(batch.data, batch.offsets):
        return batch
    broken = _invalid(batch.data, batch.offsets, 0, len(batch))
    keep = np.ones(len(batch), dtype=np.bool_)
    keep[broken] = False
    bad = sorted((*batch.bad, *(_describe(batch, index) for index in broken)), key=lambda one: one.row)
    return replace(batch.select(keep), bad=tuple(bad))


def without_long(batch: FileBatch, limit: int) -> FileBatch:
    """Return the batch with the documents of more than `limit` bytes moved to its bad ones."""
    if len(batch.data) <= limit:
        return batch
    keep = batch.lengths <= limit
    if keep.all():
        return batch
    found = [
        too_long(
            int(batch.rows[index]), batch.data[batch.offsets[index] :][: limit + 1][:1000].tobytes(), limit
        )
        for index in np.flatnonzero(~keep).tolist()
    ]
    bad = sorted((*batch.bad, *found), key=lambda one: one.row)
    return replace(batch.select(keep), bad=tuple(bad))


def _invalid(data: Bytes, offsets: Ints, start: int, stop: int) -> list[int]:
    """Find the invalid documents of `start:stop` by bisection; cheap if they are few."""
    if start == stop or is_utf8(data, offsets[start : stop + 1]):
        return []
    if stop - start == 1:
        return [start]
    middle = (start + stop) // 2
    return _invalid(data, offsets, start, middle) + _invalid(data, offsets, middle, stop)


def _describe(batch: FileBatch, index: int) -> BadDocument:
    document = batch.data[batch.offsets[index] : batch.offsets[index + 1]].tobytes()
    return invalid_utf8(int(batch.rows[index]), document)
