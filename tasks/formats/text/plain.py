r"""Plain text: a file that is one document, documents on lines, or between delimiters; and prose.

Bytes are not changed: newlines are not translated and white space is not trimmed. A line's document is the
line without its ending, `\n` or `\r\n`; a `\r` alone does not end a line, and a file with no other line ends
is refused. An empty line is a document of 0 bytes, and so is the text between two adjacent delimiters. An
empty file, or one with nothing but a byte order mark, has no documents.

A line end in a delimiter is either of the two. A delimiter on a line of its own takes that line's end with
it, and a line end alone after the last delimiter is not a document.
"""

from collections.abc import Iterator

import numpy as np

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span, content
from tokmill.tasks.formats.text.documents import FileBatch, Ints, offsets_of
from tokmill.tasks.formats.text.rows import NEWLINE, RowBlock, Separator, row_blocks
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location

_CARRIAGE_RETURN, _NEWLINE = b"\r\n"


def read_text(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the whole file as one document; of a file that is too long, only a part is read."""
    text, start = beginning(path, span, options)
    if text:
        yield FileBatch(
            data=np.frombuffer(text, dtype=np.uint8),
            offsets=np.array([0, len(text)], dtype=np.int64),
            rows=np.zeros(1, dtype=np.int64),
            bounds=np.array([[start, start + len(text)]], dtype=np.int64),
        )


def beginning(path: Location, span: Span, options: ReadOptions) -> tuple[bytearray, int]:
    """Return a file's content, at least as much as shows that it is too long, and the position of it."""
    text, start = bytearray(), 0
    for block, position in content(path, span, options.encoding):
        start = start if text else position
        text += block
        if len(text) > options.max_document_bytes:
            break
    return text, start


def read_lines(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield each line as a document."""
    row = span.first_row
    for lines in _row_blocks(path, span, NEWLINE, options):
        if row == 0:
            _refuse_returns(path, lines)
        buffer = np.frombuffer(lines.block, dtype=np.uint8)
        # A last line without newline keeps a carriage return: only "\r\n" is a line ending.
        ended = (lines.stops > lines.starts) & (lines.ends > lines.stops)
        returns = ended & (buffer[lines.stops - 1] == _CARRIAGE_RETURN)
        block = lines.block.replace(b"\r\n", b"\n") if returns.any() else lines.block
        lengths = lines.stops - lines.starts - returns
        yield _file_batch(lines, block.replace(b"\n", b""), lengths, row)
        row += len(lengths)


def read_delimited(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the texts between delimiters; a delimiter at the end does not begin another document."""
    delimiter = (options.delimiter or "").encode("utf-8")
    separator = Separator(delimiter, any_line_end=True)
    row, is_own_line = span.first_row, False
    for rows in _row_blocks(path, span, separator, options):
        if row == 0 and b"\n" in delimiter:
            _refuse_returns(path, rows)
        inside, is_own_line = _without_line_ends(rows, delimiter, is_own_line=is_own_line, first_row=row)
        lengths = inside.stops - inside.starts
        if int(lengths.sum()) + len(delimiter) * len(lengths) == len(rows.block):
            text = rows.block.replace(delimiter, b"")
        else:
            bounds = zip(inside.starts.tolist(), inside.stops.tolist(), strict=True)
            text = bytearray().join(rows.block[start:stop] for start, stop in bounds)
        yield _file_batch(inside, text, lengths, row)
        row += len(lengths)


def _row_blocks(path: Location, span: Span, separator: Separator, options: ReadOptions) -> Iterator[RowBlock]:
    return row_blocks(content(path, span, options.encoding), separator, options.max_document_bytes)


def _without_line_ends(
    rows: RowBlock, delimiter: bytes, *, is_own_line: bool, first_row: int
) -> tuple[RowBlock, bool]:
    """Return rows without the ends of lines of delimiters alone, and whether such a line follows them."""
    if delimiter.endswith(b"\n"):
        return rows, False
    starts, stops, ends = rows.starts, rows.stops, rows.ends
    padded = np.append(np.frombuffer(rows.block, dtype=np.uint8), np.zeros(2, dtype=np.uint8))
    own = (ends > stops) & ((stops == starts) | (padded[stops - 1] == _NEWLINE) | delimiter.startswith(b"\n"))
    follows = np.append(is_own_line, own[:-1])
    returns = (padded[starts] == _CARRIAGE_RETURN) & (padded[starts + 1] == _NEWLINE)
    skipped = np.where(follows & (padded[starts] == _NEWLINE), 1, np.where(follows & returns, 2, 0))
    starts = np.minimum(starts + skipped, stops)
    is_rest = first_row + len(starts) > 1 and ends[-1] == stops[-1]
    kept = len(starts) - (is_rest and bytes(rows.block[starts[-1] : stops[-1]]) in (b"", b"\n", b"\r\n"))
    return RowBlock(rows.block, starts[:kept], stops[:kept], ends[:kept], rows.position), bool(own[-1])


def _refuse_returns(path: Location, rows: RowBlock) -> None:
    r"""Reject a file whose lines end with `\r`: these rows, which begin it, have no other line ends."""
    if b"\n" not in rows.block and b"\r" in rows.block.rstrip(b"\r"):
        raise SourceError(
            f"{path}: its lines end with a carriage return alone; replace each by a newline, or set format = "
            "'text' to read it as one document"
        )


def _file_batch(rows: RowBlock, text: bytearray, lengths: Ints, row: int) -> FileBatch:
    return FileBatch(
        data=np.frombuffer(text, dtype=np.uint8),
        offsets=offsets_of(lengths),
        rows=np.arange(row, row + len(lengths)),
        bounds=rows.bounds,
    )
