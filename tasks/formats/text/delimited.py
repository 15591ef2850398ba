r"""Plain text: a file that is one document, documents on lines, or between delimiters; and rows in general.

Bytes are not changed: newlines are not translated and white space is not trimmed. A line's document is the
line without its ending, `\n` or `\r\n`; a `\r` alone does not end a line, and a file with no other line ends
is refused. An empty line is a document of 0 bytes, and so is the text between two adjacent delimiters. An
empty file, or one with nothing but a byte order mark, has no documents.

A line end in a delimiter is either of the two. A delimiter on a line of its own takes that line's end with
it, and a line end alone after the last delimiter is not a document.

The file is read in blocks. Separators are found from left to right and do not overlap. A separator ends a
row, so a separator at the end of the file does not begin another row; bytes after the last separator are a
row. A row longer than a limit is truncated to one byte more than the limit.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.compression import DETECTED, blocks
from tokmill.tasks.formats.text.documents import Bytes, FileBatch, Ints, offsets_of
from tokmill.tasks.formats.text.sources import UTF_8, ReadOptions
from tokmill.tasks.remote.location import Location
from tokmill.tokenizer.core.text import BOM

_CARRIAGE_RETURN, _NEWLINE = b"\r\n"
# UTF-16 and UTF-32 are recognized by a byte order mark, or by the zeros among the first bytes: whether more
# than half of the first, second, third and fourth of each four bytes are zero.
_LOOKED_AT = 4096
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le", (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le", (True, True, True, False): "utf-32-be",
    (False, False, True, True): "utf-32-le", (True, True, False, False): "utf-32-be",
}  # fmt: skip


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


class Separator:
    r"""What ends a row.

    Attributes:
        longest: the most bytes that it has.
    """

    def __init__(self, text: bytes, *, any_line_end: bool = False) -> None:
        r"""`any_line_end` says whether each `\n` of it may be a `\r\n`."""
        self._text = text
        ends = text.count(b"\n") if any_line_end else 0
        self.longest = len(text) + ends
        self._pattern = re.compile(re.escape(text).replace(b"\\\n", b"\r?\n")) if ends else None

    def end(self, block: bytes | bytearray, start: int = 0) -> int:
        """Return the end of the first one that begins at `start` or later; -1 if there is none."""
        if self._pattern is not None and block.find(b"\r", start) >= 0:
            match = self._pattern.search(block, start)
            return -1 if match is None else match.end()
        found = block.find(self._text, start)
        return found if found < 0 else found + len(self._text)

    def last_end(self, block: bytearray) -> int:
        """Return the end of the last one that `spans` finds in a block, which has at least one."""
        overlaps = any(self._text.startswith(self._text[index:]) for index in range(1, len(self._text)))
        if overlaps or self._pattern is not None:
            return int(self.spans(block)[1][-1])
        return block.rfind(self._text) + len(self._text)

    def spans(self, block: bytes | bytearray) -> tuple[Ints, Ints]:
        """Return the starts and the ends of all, from left to right, without overlaps."""
        if self._pattern is not None and b"\r" in block:
            found = np.array([match.span() for match in self._pattern.finditer(block)], dtype=np.int64)
            return found.reshape(-1, 2)[:, 0], found.reshape(-1, 2)[:, 1]
        starts = separators(block, self._text)
        return starts, starts + len(self._text)


NEWLINE = Separator(b"\n")


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
        if position == 0 and encoding == UTF_8:
            _refuse_other_unicode(path, block)
        marked = position == 0 and block.startswith(BOM)
        yield (block[len(BOM) :], len(BOM)) if marked else (block, position)
        position += len(block)


def _refuse_other_unicode(path: Location, block: bytes) -> None:
    """Reject UTF-16 and UTF-32 that are to be read as UTF-8, by a byte order mark or the places of zeros."""
    name = next((name for mark, name in _MARKS.items() if block.startswith(mark)), "")
    beginning = block[:_LOOKED_AT]
    zeros = tuple(8 * beginning[start::4].count(0) > len(beginning) for start in range(4))
    if name := name or _ZEROS.get(zeros, ""):
        raise SourceError(f"{path}: looks like {name[:6].upper()}, not UTF-8; set encoding = {name!r}")


def row_blocks(
    path: Location, span: Span, separator: Separator, limit: int, encoding: str
) -> Iterator[RowBlock]:
    """Yield the rows of the span, about a block at a time; `limit` as for `whole`.

    If a compressed file is damaged, the row with the damage is lost.
    """
    return regrouped(content(path, span, encoding), separator, limit)


def lines(path: Location, span: Span, limit: int, encoding: str) -> Iterator[tuple[bytearray, int]]:
    """Yield the span's lines, about a block at a time, with each block's position; see `whole`."""
    return whole(content(path, span, encoding), NEWLINE, limit)


def regrouped(stream: Iterator[tuple[bytes, int]], separator: Separator, limit: int) -> Iterator[RowBlock]:
    """Yield the rows of consecutive blocks with their positions; blocks may end anywhere."""
    for block, position in whole(stream, separator, limit):
        stops, ends = separator.spans(block)
        if not len(ends) or ends[-1] < len(block):  # the last row of the file may lack its separator
            stops, ends = np.append(stops, len(block)), np.append(ends, len(block))
        yield RowBlock(block, np.concatenate(([0], ends[:-1])), stops, ends, position)


def whole(
    stream: Iterator[tuple[bytes, int]], separator: Separator, limit: int
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
        searched = max(0, len(growing) - separator.longest + 1)
        growing += block
        if separator.end(growing, searched) < 0:
            if len(growing) >= limit + separator.longest:
                rest = _Rest(separator, bytes(growing[1 - separator.longest :]))
                del growing[limit + 1 :]
            continue
        end = separator.last_end(growing)
        finished, growing = [growing], growing[end:]
        del finished[0][end:], block
        yield finished.pop(), start
        start += end
    if growing:
        yield growing, start


class _Rest:
    """Finds the end of a row that is too long, and skips the rest of it."""

    def __init__(self, separator: Separator, before: bytes) -> None:
        self._separator = separator
        self._seen = before if separator.longest > 1 else b""

    def end(self, block: bytes) -> int | None:
        """Return the row's end in the next block; None if the row continues after that block."""
        joined = self._seen + block
        end = self._separator.end(joined)
        if end >= 0:
            return end - len(self._seen)
        self._seen = joined[1 - self._separator.longest :] if self._separator.longest > 1 else b""
        return None


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
    for found in row_blocks(path, span, NEWLINE, options.max_document_bytes, options.encoding):
        if row == 0:
            _refuse_returns(path, found)
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
    delimiter = (options.delimiter or "").encode("utf-8")
    separator = Separator(delimiter, any_line_end=True)
    row, is_own_line = span.first_row, False
    for found in row_blocks(path, span, separator, options.max_document_bytes, options.encoding):
        if row == 0 and b"\n" in delimiter:
            _refuse_returns(path, found)
        inside, is_own_line = _without_line_ends(found, delimiter, is_own_line=is_own_line, first_row=row)
        lengths = inside.stops - inside.starts
        if int(lengths.sum()) + len(delimiter) * len(lengths) == len(found.block):
            text = found.block.replace(delimiter, b"")
        else:
            bounds = zip(inside.starts.tolist(), inside.stops.tolist(), strict=True)
            text = bytearray().join(found.block[start:stop] for start, stop in bounds)
        yield _file_batch(inside, text, lengths, row)
        row += len(lengths)


def _without_line_ends(
    found: RowBlock, delimiter: bytes, *, is_own_line: bool, first_row: int
) -> tuple[RowBlock, bool]:
    """Return rows without the ends of lines of delimiters alone, and whether such a line follows them."""
    if delimiter.endswith(b"\n"):
        return found, False
    starts, stops, ends = found.starts, found.stops, found.ends
    padded = np.append(np.frombuffer(found.block, dtype=np.uint8), np.zeros(2, dtype=np.uint8))
    own = (ends > stops) & ((stops == starts) | (padded[stops - 1] == _NEWLINE) | delimiter.startswith(b"\n"))
    follows = np.append(is_own_line, own[:-1])
    returns = (padded[starts] == _CARRIAGE_RETURN) & (padded[starts + 1] == _NEWLINE)
    skipped = np.where(follows & (padded[starts] == _NEWLINE), 1, np.where(follows & returns, 2, 0))
    starts = np.minimum(starts + skipped, stops)
    is_rest = first_row + len(starts) > 1 and ends[-1] == stops[-1]
    kept = len(starts) - (is_rest and bytes(found.block[starts[-1] : stops[-1]]) in (b"", b"\n", b"\r\n"))
    return RowBlock(found.block, starts[:kept], stops[:kept], ends[:kept], found.position), bool(own[-1])


def _refuse_returns(path: Location, found: RowBlock) -> None:
    r"""Reject a file whose lines end with `\r`: `found`, which begins it, has no other line ends."""
    if b"\n" not in found.block and b"\r" in found.block.rstrip(b"\r"):
        raise SourceError(
            f"{path}: its lines end with a carriage return alone; replace each by a newline, or set format = "
            "'text' to read it as one document"
        )


def _file_batch(found: RowBlock, text: bytearray, lengths: Ints, row: int) -> FileBatch:
    return FileBatch(
        data=np.frombuffer(text, dtype=np.uint8),
        offsets=offsets_of(lengths),
        rows=np.arange(row, row + len(lengths)),
        bounds=found.bounds,
    )
