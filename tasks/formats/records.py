"""Records separated by a fixed byte string: lines, or documents with a delimiter between them.

The bytes are looked at a block at a time. Separators are found from left to right and do not overlap. A
separator ends a record, so that one at the end of the file begins no further record; bytes after the last
one are a record.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.formats.compression import blocks
from tasks.formats.documents import Bytes, Ints

_BOM = b"\xef\xbb\xbf"


class Span(NamedTuple):
    """The part of a file that a reader is asked for.

    Attributes:
        first_row: the number in the file of the first document that is met.
        num_rows: how many rows from there; None to the end.
        start: where to begin, in bytes of the decompressed content; 0 where the format has no such positions.
        end: where to end; None for the end of the file.
    """

    first_row: int = 0
    num_rows: int | None = None
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, eq=False)
class Records:
    """Consecutive records.

    Attributes:
        block: the bytes, beginning with a record and ending with one.
        starts: int64[n], where each record begins in `block`.
        stops: int64[n], where its separator begins; the block's length for a last record without one.
        ends: int64[n], where its separator ends.
        position: where `block` begins in the file's content.
    """

    block: bytes
    starts: Ints
    stops: Ints
    ends: Ints
    position: int

    @property
    def bounds(self) -> Ints:
        """The records with their separators as positions in the file's content, int64[n, 2]."""
        return np.stack((self.starts, self.ends), axis=1) + self.position


def content(path: Path, span: Span) -> Iterator[tuple[bytes, int]]:
    """Yield the span's blocks with their positions, without a byte order mark at the file's head."""
    position = span.start
    for block in blocks(path, span.start, span.end):
        marked = position == 0 and block.startswith(_BOM)
        yield (block[len(_BOM) :], len(_BOM)) if marked else (block, position)
        position += len(block)


def records(path: Path, span: Span, separator: bytes) -> Iterator[Records]:
    """Yield the records of the span, about a block at a time.

    A break in a compressed file takes the record that it falls into with it.
    """
    return regrouped(content(path, span), separator)


def regrouped(stream: Iterator[tuple[bytes, int]], separator: bytes) -> Iterator[Records]:
    """Yield the records in consecutive blocks, each given with its position, wherever the blocks are cut."""
    tail, tail_position = b"", 0
    while (taken := _taken(stream, len(tail))) is not None:
        block, position = taken
        tail_position = tail_position if tail else position
        joined = tail + block if tail else block
        stops = separators(joined, separator, max(0, len(tail) - len(separator) + 1))
        if not len(stops):
            tail = joined
            continue
        ends = stops + len(separator)
        last = int(ends[-1])
        yield Records(joined[:last], np.concatenate(([0], ends[:-1])), stops, ends, tail_position)
        tail, tail_position = joined[last:], tail_position + last
    if tail:
        size = np.array([len(tail)], dtype=np.int64)
        yield Records(tail, np.zeros(1, dtype=np.int64), size, size, tail_position)


def _taken(stream: Iterator[tuple[bytes, int]], at_least: int) -> tuple[bytes, int] | None:
    """Take the next blocks as one, as long as what is held back, so that a long record is copied seldom."""
    first = next(stream, None)
    if first is None:
        return None
    parts, num_bytes = [first[0]], len(first[0])
    while num_bytes < at_least and (following := next(stream, None)) is not None:
        parts.append(following[0])
        num_bytes += len(following[0])
    return (b"".join(parts) if len(parts) > 1 else parts[0]), first[1]


def separators(block: bytes, separator: bytes, start: int = 0) -> Ints:
    """Return where `separator` stands in `block`, from `start` on; from left to right, not overlapping."""
    buffer: Bytes = np.frombuffer(block, dtype=np.uint8)[start : max(start, len(block) - len(separator) + 1)]
    found = np.flatnonzero(buffer == separator[0]) + start
    whole = np.frombuffer(block, dtype=np.uint8)
    for index in range(1, len(separator)):
        found = found[whole[found + index] == separator[index]]
    return _without_overlaps(found, len(separator))


def _without_overlaps(found: Ints, length: int) -> Ints:
    if length == 1 or len(found) < 2 or int(np.diff(found).min()) >= length:
        return found
    kept: list[int] = []
    for position in found.tolist():
        if not kept or position >= kept[-1] + length:
            kept.append(position)
    return np.array(kept, dtype=np.int64)
