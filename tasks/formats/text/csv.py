r"""CSV: one document per row, below a header (RFC 4180), or in another dialect (`csv_dialect`).

Rows are numbered from 0 after the header; empty lines are not rows. A row must have as many fields as the
header. Only dialects with escapes have nulls (`\N`): an empty field is a document of 0 bytes. Rows may span
lines, so reading can start in the middle of a file only at a known start of a row, and it ends at a field
that is not quoted properly, since what follows may be the rest of that field. Bytes that are not UTF-8 pass
through the parser as surrogates and are reported afterwards.
"""

import csv
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.compression import BLOCK_BYTES
from tokmill.tasks.formats.text.content import WHOLE, RowBlock, Separator, Span, content, row_blocks
from tokmill.tasks.formats.text.csv_dialect import (
    Dialect,
    Row,
    default_delimiter,
    dialect_of,
    drafted,
    is_ambiguous,
    proper_row,
    protected,
    restored,
    rows_of,
    start_of,
)
from tokmill.tasks.formats.text.documents import FileBatch, file_batch
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, invalid_utf8
from tokmill.tasks.formats.text.sources import ReadOptions, check_column
from tokmill.tasks.remote.location import Location

# After a broken row, so many proper ones are taken as such.
_CERTAIN_ROWS = 100
_NOT_READ = "what comes after it was not read"


class _Row(NamedTuple):
    start: int
    end: int
    fields: Row
    reason: str = ""
    detail: str = ""


class _LongRowError(Exception):
    """A row is longer than `max_document_bytes`."""


class _Lines:
    r"""Lines with their endings, as text; keeps the parser's position in the file.

    Attributes:
        stream: yields the lines.
        position: start of the next line.
        row: start of the parser's current row.
        text: the first line of that row; all its lines if `keeps` is set.
        is_protected: whether characters of line ends within lines are replaced.
    """

    def __init__(self, path: Location, span: Span, options: ReadOptions, dialect: Dialect) -> None:
        self.position = self.row = span.start
        self.text = ""
        self.is_protected = self.keeps = False
        self._name, self._dialect = path.name, dialect
        self._limit = options.max_document_bytes + 2  # the line ending does not count
        blocks = content(path, span, options.encoding)
        self.stream = self._read(row_blocks(blocks, Separator(dialect.line_end), self._limit))

    def _read(self, blocks: Iterator[RowBlock]) -> Generator[str, None, None]:
        limit, is_certain = self._limit, self._dialect.is_certain
        for found in blocks:
            self.is_protected |= _has_ends_inside(found, self._dialect.line_end)
            block, offset = memoryview(found.block), found.position
            for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
                self.position = offset + end
                if self.position - self.row > limit:
                    raise _LongRowError
                line = str(block[start:end], "utf-8", "surrogateescape")
                if offset + start == self.row:
                    self.text = line
                elif self.keeps:
                    self.text += line
                if not is_certain and is_ambiguous(line):
                    raise SourceError(
                        f"{self._name}: '{excerpt(line)}' has quotes or backslashes, but the beginning of "
                        "the file has none that show whether they belong to the text; set quoting = 'none' "
                        "if they do, else quoting = 'double' or 'escapes'"
                    )
                yield protected(line) if self.is_protected else line


def _has_ends_inside(found: RowBlock, line_end: bytes) -> bool:
    r"""Whether lines have a `\r` or `\n` inside."""
    if line_end == b"\r":
        return b"\n" in found.block
    num_returns = found.block.count(b"\r")
    before = np.frombuffer(found.block, dtype=np.uint8)[found.stops[found.stops > found.starts] - 1]
    return num_returns > int(np.count_nonzero(before == ord("\r")))


def read_csv(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's rows."""
    start = start_of(path, span.whole_file, options.encoding)
    dialect = dialect_of(path.name, start, options)
    header, first = _header(path.name, start.lines, dialect)
    if not header:
        return
    if options.columns:
        header, first = [*options.columns], dialect.start
    _check_columns(path.name, header, options)
    held: list[_Row] = []
    number, num_bytes = span.first_row, 0
    for row in _rows(path, span._replace(start=max(span.start, first)), dialect, options, len(header)):
        held.append(row)
        num_bytes += row.end - row.start
        if num_bytes >= BLOCK_BYTES:
            yield _file_batch(held, number, header, options)
            number, num_bytes, held = number + len(held), 0, []
    if held:
        yield _file_batch(held, number, header, options)


class Sketch(NamedTuple):
    """The beginning of a CSV file of unknown columns, for drafting a profile."""

    options: dict[str, Any]  # delimiter, quoting and columns, as far as reading the file needs them
    names: list[str]  # its columns
    rows: list[dict[str, str | None]]  # rows with a field for each


def sketch(path: Location, given: ReadOptions, num_rows: int) -> Sketch:
    """Read the first rows of a CSV file; if its first row does not look like names, columns get numbers."""
    start = start_of(path, WHOLE, given.encoding)
    dialect, has_header = drafted(path.name, start, given)
    names, first = _header(path.name, start.lines, dialect)
    usual = {"delimiter": default_delimiter(path.name), "quoting": "double"}
    options: dict[str, Any] = {
        name: getattr(dialect, name) for name, value in usual.items() if getattr(dialect, name) != value
    }
    if not has_header:
        names = options["columns"] = [f"column_{number}" for number in range(1, len(names) + 1)]
        first = dialect.start
    rows = _rows(path, Span(start=first), dialect, given, len(names))
    found = (row.fields for row in rows if not row.reason and len(row.fields) == len(names))
    return Sketch(options, names, [dict(zip(names, row, strict=True)) for row in islice(found, num_rows)])


def _rows(path: Location, span: Span, dialect: Dialect, options: ReadOptions, number: int) -> Iterator[_Row]:
    """Yield rows; `number` is how many fields they should have."""
    lines = _Lines(path, span, options, dialect)
    parser = rows_of(lines.stream, dialect)
    while True:
        start = lines.row = lines.position
        try:
            fields = next(parser)
        except StopIteration:
            return
        except csv.Error:
            broken = _Row(start, lines.position, [lines.text], "broken_csv")
            yield from _resumed(lines, dialect, number, broken)
            parser = rows_of(lines.stream, dialect)
            continue
        except _LongRowError:  # the start of the next row is unknown
            problem = f"over {options.max_document_bytes:,} bytes; {_NOT_READ}"
            yield _Row(start, lines.position, [lines.text], "too_long", problem)
            return
        if fields:
            yield _Row(start, lines.position, restored(fields) if lines.is_protected else fields)


def _resumed(lines: _Lines, dialect: Dialect, number: int, broken: _Row) -> Iterator[_Row]:
    """Yield a broken row with all that may belong to it, and the rows after it.

    Whether the next line begins a row or continues the broken field is unknown. So the next rows are those
    from which on many, or all to the end, have the right number of fields and proper quotes. In a file with
    one column, every line has.
    """
    is_proper, found, end = proper_row(dialect, number), list[_Row](), broken.end
    parser, lines.keeps = rows_of(lines.stream, dialect), True
    while len(found) < _CERTAIN_ROWS and number > 1:
        start = lines.row = lines.position
        try:
            fields = next(parser)
        except StopIteration:
            break
        except _LongRowError:
            found = []
            break
        except csv.Error:
            fields, parser = [None], rows_of(lines.stream, dialect)
        if fields and is_proper(lines.text):
            found.append(_Row(start, lines.position, restored(fields)))
        elif fields:
            found, end = [], lines.position
    lines.keeps = False
    rest = f"{end - broken.end:,} bytes after it were left out" if found else _NOT_READ
    yield broken._replace(detail=f"a field is not quoted properly; {rest}")
    yield from found
    if not found:
        lines.stream.close()


def _header(name: str, lines: list[str], dialect: Dialect) -> tuple[list[str], int]:
    """Return the names in the first row, and the position after it."""
    consumed = iter(lines)
    try:
        header = next(filter(None, rows_of(map(protected, consumed), dialect)), [])
    except csv.Error as error:
        msg = f"{name}: the header cannot be read ({error}); the first line must name the columns"
        raise SourceError(msg) from error
    num_lines = len(lines) - len(list(consumed))
    num_bytes = sum(len(line.encode("utf-8", "surrogateescape")) for line in lines[:num_lines])
    return [field or "" for field in restored(header)], dialect.start + num_bytes


def _check_columns(name: str, header: list[str], options: ReadOptions) -> None:
    try:
        check_column(name, options.text_column, header, "text_column")
        check_column(name, options.id_column, header, "id_column")
    except SourceError as error:
        msg = f"{error}; or set delimiter or quoting as the file has them, or columns if it has no header"
        raise SourceError(msg) from None


def _file_batch(held: list[_Row], first: int, header: list[str], options: ReadOptions) -> FileBatch:
    bad: list[BadDocument] = []
    kept: dict[int, bytes] = {}
    text_column = header.index(options.text_column)
    for index, row in enumerate(held):
        text = _text(row, first + index, text_column, len(header))
        if isinstance(text, BadDocument):
            bad.append(text)
        else:
            kept[index] = text
    bounds = np.array([(held[index].start, held[index].end) for index in kept], dtype=np.int64).reshape(-1, 2)
    ids = None
    if options.id_column is not None:
        column = header.index(options.id_column)
        ids = pa.array([_clean(held[index].fields[column]) for index in kept], pa.large_string())
    rows = np.array([*kept], dtype=np.int64) + first
    return file_batch([*kept.values()], rows, bounds=bounds, ids=ids, bad=tuple(bad))


def _text(row: _Row, number: int, text_column: int, num_columns: int) -> bytes | BadDocument:
    if row.reason:
        beginning = _clean((row.fields[0] or "")[:1000]) or ""
        return BadDocument(number, row.reason, excerpt(beginning), row.detail)
    if len(row.fields) != num_columns:
        detail = f"{len(row.fields)} fields, but the header has {num_columns}"
        shown = " | ".join(field or "" for field in row.fields)
        return BadDocument(number, "broken_csv", excerpt(_clean(shown) or ""), detail)
    field = row.fields[text_column]
    if field is None:
        return BadDocument(number, "null_text", "", "the text is null")
    try:
        return field.encode("utf-8")
    except UnicodeEncodeError:
        return invalid_utf8(number, field.encode("utf-8", "surrogateescape"))


def _clean(field: str | None) -> str | None:
    """Replace the surrogates that stand for invalid bytes."""
    return field and field.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
