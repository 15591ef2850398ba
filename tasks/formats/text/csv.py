"""CSV: a header, then one document per row, fields quoted with `"` and quotes doubled (RFC 4180).

Rows are numbered from 0 after the header; empty lines are not rows. A row must have as many fields as the
header. CSV has no null: an empty field is a document of 0 bytes. Rows may span lines, so reading can start
in the middle of a file only at a known start of a row. Bytes that are not UTF-8 pass through the parser as
surrogates and are reported afterwards.
"""

import csv
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.compression import BLOCK_BYTES
from tokmill.tasks.formats.text.delimited import Span, row_blocks
from tokmill.tasks.formats.text.documents import FileBatch, file_batch
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, invalid_utf8
from tokmill.tasks.formats.text.sources import ReadOptions, check_column, format_by_name, inner_suffix
from tokmill.tasks.remote.location import Location


class _Row(NamedTuple):
    start: int
    end: int
    fields: list[str]
    error: str = ""
    is_long: bool = False


class _Columns(NamedTuple):
    text: int
    id: int | None
    number: int


class _LongRowError(Exception):
    """A row is longer than `max_document_bytes`."""


class _Lines(Iterator[str]):
    """Lines with their endings, as text; keeps the parser's position in the file.

    Attributes:
        position: start of the next line.
        row: start of the parser's current row.
        last: the last line given to the parser.
    """

    def __init__(self, path: Location, span: Span, options: ReadOptions) -> None:
        self.position = span.start
        self.row = span.start
        self.last = ""
        self._limit = options.max_document_bytes
        self._encoding = options.encoding
        self._lines = self._read(path, span)

    def __next__(self) -> str:
        start, line = next(self._lines)
        self.position = start + len(line)
        if self.position - self.row > self._limit + 2:  # the line ending does not count
            raise _LongRowError
        self.last = line.decode("utf-8", "surrogateescape")
        return self.last

    def _read(self, path: Location, span: Span) -> Iterator[tuple[int, bytes]]:
        for found in row_blocks(path, span, b"\n", self._limit + 2, self._encoding):
            for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
                yield found.position + start, bytes(found.block[start:end])


def read_csv(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's rows.

    Raises:
        SourceError: the header lacks the text or the id column.
    """
    with_tabs = inner_suffix(path.name) == ".tsv" or (options.format, format_by_name(path.name)) == (
        "auto",
        "text",
    )
    delimiter = options.delimiter or ("\t" if with_tabs else ",")
    header = next(_rows(path, span.whole_file, delimiter, options), None)
    if header is None:
        return
    if header.error:
        msg = f"{path.name}: the header cannot be read ({header.error}); the first line must name the columns"
        raise SourceError(msg)
    columns = _columns(path.name, header.fields, options)
    inside = span._replace(start=max(span.start, header.end))
    held: list[_Row] = []
    first, num_bytes = span.first_row, 0
    for row in _rows(path, inside, delimiter, options):
        held.append(row)
        num_bytes += row.end - row.start
        if num_bytes >= BLOCK_BYTES:
            yield _file_batch(held, first, columns)
            first, num_bytes, held = first + len(held), 0, []
    if held:
        yield _file_batch(held, first, columns)


def _rows(path: Location, span: Span, delimiter: str, options: ReadOptions) -> Iterator[_Row]:
    # A text may be longer than the parser's default limit of 128 KiB per field.
    csv.field_size_limit(min(sys.maxsize, (1 << 31) - 1))
    lines = _Lines(path, span, options)
    parser = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = lines.row = lines.position
        try:
            fields = next(parser)
        except StopIteration:
            return
        except csv.Error as error:
            yield _Row(start, lines.position, [lines.last], str(error))
            continue
        except _LongRowError:  # the start of the next row is unknown
            problem = f"over {options.max_document_bytes:,} bytes; what comes after it was not read"
            yield _Row(start, lines.position, [lines.last], problem, is_long=True)
            return
        if fields:
            yield _Row(start, lines.position, fields)


def _columns(name: str, header: list[str], options: ReadOptions) -> _Columns:
    wanted = {"text_column": options.text_column, "id_column": options.id_column}
    for option, column in wanted.items():
        check_column(name, column, header, option)
    id_index = None if options.id_column is None else header.index(options.id_column)
    return _Columns(header.index(options.text_column), id_index, len(header))


def _file_batch(held: list[_Row], first: int, columns: _Columns) -> FileBatch:
    bad: list[BadDocument] = []
    kept: list[int] = []
    texts: list[bytes] = []
    for index, row in enumerate(held):
        text = _text(row, first + index, columns)
        if isinstance(text, BadDocument):
            bad.append(text)
        else:
            kept.append(index)
            texts.append(text)
    bounds = np.array([(held[index].start, held[index].end) for index in kept], dtype=np.int64).reshape(-1, 2)
    ids = None
    if columns.id is not None:
        ids = pa.array([_clean(held[index].fields[columns.id]) for index in kept], pa.large_string())
    rows = np.array(kept, dtype=np.int64) + first
    return file_batch(texts, rows, bounds=bounds, ids=ids, bad=tuple(bad))


def _text(row: _Row, number: int, columns: _Columns) -> bytes | BadDocument:
    if row.is_long:
        return BadDocument(number, "too_long", excerpt(_clean(row.fields[0][:1000])), row.error)
    if row.error:
        return BadDocument(number, "broken_csv", excerpt(_clean(row.fields[0])), row.error)
    if len(row.fields) != columns.number:
        detail = f"{len(row.fields)} fields, but the header has {columns.number}"
        return BadDocument(number, "broken_csv", excerpt(_clean(" | ".join(row.fields))), detail)
    field = row.fields[columns.text]
    try:
        return field.encode("utf-8")
    except UnicodeEncodeError:
        return invalid_utf8(number, field.encode("utf-8", "surrogateescape"))


def _clean(field: str) -> str:
    """Replace the surrogates that stand for invalid bytes."""
    return field.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
