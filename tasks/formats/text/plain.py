r"""Plain text: a file that is one document, documents on lines, or documents between delimiters.

Bytes are not changed: newlines are not translated and white space is not trimmed. A line's document is the
line without its ending, `\n` or `\r\n`; a `\r` alone does not end a line. An empty line is a document of 0
bytes, and so is the text between two adjacent delimiters. An empty file, or one with nothing but a byte order
mark, has no documents.
"""

from collections.abc import Iterator

import numpy as np

from tokmill.tasks.formats.text.delimited import RowBlock, Span, content, row_blocks
from tokmill.tasks.formats.text.documents import FileBatch, Ints, offsets_of
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location

_CARRIAGE_RETURN = 13


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
