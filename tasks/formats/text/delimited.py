r"""Plain text: a file that is one document, documents on lines, or between delimiters; and rows in general.

Bytes are not changed: newlines are not translated and white space is not trimmed. A line's document is the
line without its ending, `\n` or `\r\n`; a `\r` alone does not end a line. An empty line is a document of 0
bytes, and so is the text between two adjacent delimiters. An empty file, or one with nothing but a byte order
mark, has no documents.

The file is read in blocks. Separators are found from left to right and do not overlap. A separator ends a
row, so a separator at the end of the file does not begin another row; bytes after the last separator are a
row. A row longer than a limit is truncated to one byte more than the limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokmill.tasks.formats.text.compression import DETECTED, blocks
from tokmill.tasks.formats.text.documents import Bytes, FileBatch, Ints, offsets_of
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location

_BOM = b"\xef\xbb\xbf"
_CARRIAGE_RETURN = 13


class Span(NamedTuple):
    """The part of a file that a reader is asked for.

    Attributes:
        first_row: number in the file of the first row.
        num_rows: number of rows; None for all.
        start: byte of the decompressed content to start at; 0 where the format has no such positions.
        end: byte to end at; None for the end of the file.
        sound_bytes: of a damaged compressed file, how many bytes of its content can be trusted.
        codec: the file's compression, or None; `DETECTED` if it is unknown.
    """

    first_row: int = 0
    num_rows: int | None = None
    start: int = 0
    end: int | None = None
    sound_bytes: int | None = None
    codec: str | None = DETECTED

    @property
    def whole_file(self) -> "Span":
        """The span of all of the file."""
        return Span(sound_bytes=self.sound_bytes, codec=self.codec)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Consecutive rows.

    Attributes:
        block: the bytes of whole rows.
        starts: int64[n], index in `block` at which each row begins.
        stops: int64[n], start of its separator; the block's length for a last row without one.
        ends: int64[n], end of its separator.
        position: position of `block` in the file's content.
    """

    block: bytearray
    starts: Ints
    stops: Ints
    ends: Ints
    position: int

    @property
    def bounds(self) -> Ints:
        """The bounds of the rows with their separators in the file's content, int64[n, 2]."""
        return np.stack((self.starts, self.ends), axis=1) + self.position


def content(path: Location, span: Span, encoding: str) -> Iterator[tuple[bytes, int]]:
    """Yield the span's blocks with their positions, without a byte order mark at the start of the file."""
    position = span.start
    for block in blocks(path, span.start, span.end, encoding, span.sound_bytes, span.codec):
        marked = position == 0 and block.startswith(_BOM)
        yield (block[len(_BOM) :], len(_BOM)) if marked else (block, position)
        position += len(block)


def row_blocks(path: Location, span: Span, separator: bytes, limit: int, encoding: str) -> Iterator[RowBlock]:
    """Yield the rows of the span, about a block at a time; `limit` as for `whole`.

    If a compressed file is damaged, the row with the damage is lost.
    """
    return regrouped(content(path, span, encoding), separator, limit)


def lines(path: Location, span: Span, limit: int, encoding: str) -> Iterator[tuple[bytearray, int]]:
    """Yield the span's lines, about a block at a time, with each block's position; see `whole`."""
    return whole(content(path, span, encoding), b"\n", limit)


def regrouped(stream: Iterator[tuple[bytes, int]], separator: bytes, limit: int) -> Iterator[RowBlock]:
    """Yield the rows of consecutive blocks with their positions; blocks may end anywhere."""
    for block, position in whole(stream, separator, limit):
        stops = separators(block, separator)
        ends = stops + len(separator)
        if not len(ends) or ends[-1] < len(block):  # the last row of the file may lack its separator
            stops, ends = np.append(stops, len(block)), np.append(ends, len(block))
        yield RowBlock(block, np.concatenate(([0], ends[:-1])), stops, ends, position)


def whole(
    stream: Iterator[tuple[bytes, int]], separator: bytes, limit: int
) -> Iterator[tuple[bytearray, int]]:
    """Rearrange consecutive blocks so that each ends with a separator; only the last may lack it.

    A single row may take most of the memory. So it grows in one buffer, which the system can move without
    copying, and no reference to it is kept after it is yielded. A row of more than `limit` bytes is truncated
    to `limit` + 1 bytes, and is a block of its own without a separator.
    """
    growing, start = bytearray(), 0
    rest: _Rest | None = None
    for block, position in stream:
        if rest is not None:
            after = rest.end(block)
            if after is None:
                continue
            yield growing, start
            growing, rest = bytearray(), None
            block, position = block[after:], position + after  # noqa: PLW2901
        start = start if growing else position
        searched = max(0, len(growing) - len(separator) + 1)
        growing += block
        if growing.find(separator, searched) < 0:
            if len(growing) >= limit + len(separator):
                rest = _Rest(separator, bytes(growing[1 - len(separator) :]))
                del growing[limit + 1 :]
            continue
        end = _last_end(growing, separator)
        finished, growing = [growing], growing[end:]
        del finished[0][end:], block
        yield finished.pop(), start
        start += end
    if growing:
        yield growing, start


class _Rest:
    """Finds the end of a row that is too long, and skips the rest of it."""

    def __init__(self, separator: bytes, before: bytes) -> None:
        self._separator = separator
        self._seen = before if len(separator) > 1 else b""

    def end(self, block: bytes) -> int | None:
        """Return the row's end in the next block; None if the row continues after that block."""
        joined = self._seen + block
        found = joined.find(self._separator)
        if found >= 0:
            return found + len(self._separator) - len(self._seen)
        self._seen = joined[1 - len(self._separator) :] if len(self._separator) > 1 else b""
        return None


def _last_end(block: bytearray, separator: bytes) -> int:
    """Return the end of the last separator that `separators` finds in the block, which has at least one."""
    overlaps = any(separator.startswith(separator[index:]) for index in range(1, len(separator)))
    last = int(separators(block, separator)[-1]) if overlaps else block.rfind(separator)
    return last + len(separator)


def separators(block: bytes | bytearray, separator: bytes) -> Ints:
    """Return the positions of `separator` in `block`, from left to right, without overlaps."""
    buffer: Bytes = np.frombuffer(block, dtype=np.uint8)
    found = np.flatnonzero(buffer[: max(0, len(block) - len(separator) + 1)] == separator[0])
    for index in range(1, len(separator)):
        found = found[buffer[found + index] == separator[index]]
    return _without_overlaps(found, len(separator))


def _without_overlaps(found: Ints, length: int) -> Ints:
    if length == 1 or len(found) < 2 or int(np.diff(found).min()) >= length:
        return found
    kept: list[int] = []
    for position in found.tolist():
        if not kept or position >= kept[-1] + length:
            kept.append(position)
    return np.array(kept, dtype=np.int64)


def read_text(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the whole file as one document; of a file that is too long, only a part is read."""
    text, start = bytearray(), 0
    for block, position in content(path, span, options.encoding):
        start = start if text else position
        text += block
        if len(text) > options.max_document_bytes:
            break
    if text:
        yield FileBatch(
            data=np.frombuffer(text, dtype=np.uint8),
            offsets=np.array([0, len(text)], dtype=np.int64),
            rows=np.zeros(1, dtype=np.int64),
            bounds=np.array([[start, start + len(text)]], dtype=np.int64),
        )


def read_lines(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield each line as a document."""
    row = span.first_row
    for found in row_blocks(path, span, b"\n", options.max_document_bytes, options.encoding):
        buffer = np.frombuffer(found.block, dtype=np.uint8)
        # A last line without newline keeps a carriage return: only "\r\n" is a line ending.
        ended = (found.stops > found.starts) & (found.ends > found.stops)
        returns = ended & (buffer[found.stops - 1] == _CARRIAGE_RETURN)
        block = found.block.replace(b"\r\n", b"\n") if returns.any() else found.block
        lengths = found.stops - found.starts - returns
        yield _file_batch(found, block.replace(b"\n", b""), lengths, row)
        row += len(lengths)


def read_delimited(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the texts between delimiters; a delimiter at the end does not begin another document."""
    separator = (options.delimiter or "").encode("utf-8")
    row = span.first_row
    for found in row_blocks(path, span, separator, options.max_document_bytes, options.encoding):
        lengths = found.stops - found.starts
        yield _file_batch(found, found.block.replace(separator, b""), lengths, row)
        row += len(lengths)


def _file_batch(found: RowBlock, text: bytearray, lengths: Ints, row: int) -> FileBatch:
    return FileBatch(
        data=np.frombuffer(text, dtype=np.uint8),
        offsets=offsets_of(lengths),
        rows=np.arange(row, row + len(lengths)),
        bounds=found.bounds,
    )
