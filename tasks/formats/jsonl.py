"""JSON lines: one object a line, the text under one key.

A block of lines is read in one go; only where that fails are its lines looked at one by one, to say which is
bad and why. The row of a document is the number of its line, from 0. Lines of nothing but white space are no
documents. An id that is no string is written as JSON; a missing or null one is null. Where a key stands
twice, the last one counts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from tasks.formats.documents import ArrowArray, Piece, piece_of
from tasks.formats.quarantine import BadDocument, excerpt, invalid_utf8
from tasks.formats.records import Records, Span, records
from tasks.formats.sources import ReadOptions, nearest


def read_jsonl(path: Path, span: Span, options: ReadOptions) -> Iterator[Piece]:
    """Yield the documents of the span's lines."""
    row = span.first_row
    for found in records(path, span, b"\n"):
        piece = _fast(found, row, options)
        yield _slow(found, row, options) if piece is None else piece
        row += len(found.starts)


def _lines(found: Records) -> list[bytes]:
    lines = found.block.split(b"\n")
    return lines[: len(found.starts)]


def _fast(found: Records, row: int, options: ReadOptions) -> Piece | None:
    """Read lines that are all in order; None where one is not."""
    load, column = orjson.loads, options.text_column
    try:
        objects = [load(line) for line in _lines(found)]
        texts = [one[column].encode() for one in objects]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, IndexError, UnicodeEncodeError):
        return None
    ids = _ids(objects, options.id_column)
    return piece_of(texts, np.arange(row, row + len(texts)), bounds=found.bounds, ids=ids)


def _slow(found: Records, row: int, options: ReadOptions) -> Piece:
    """Read lines one by one, putting the bad ones aside."""
    texts: list[bytes] = []
    objects: list[dict[str, Any]] = []
    kept: list[int] = []
    bad: list[BadDocument] = []
    for index, line in enumerate(_lines(found)):
        if not line.strip(b" \t\r"):
            continue
        value = _parsed(line, row + index, options.text_column)
        if isinstance(value, BadDocument):
            bad.append(value)
            continue
        kept.append(index)
        objects.append(value)
        texts.append(value[options.text_column].encode())
    rows = np.array(kept, dtype=np.int64)
    ids = _ids(objects, options.id_column)
    return piece_of(texts, rows + row, bounds=found.bounds[rows], ids=ids, bad=tuple(bad))


def _parsed(line: bytes, row: int, column: str) -> dict[str, Any] | BadDocument:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return _unreadable(line, row, error)
    if not isinstance(value, dict):
        return BadDocument(row, "not_an_object", excerpt(line), f"the line holds a {_kind(value)}")
    if column not in value:
        keys = ", ".join(nearest(column, list(value))) or "none"
        return BadDocument(row, "missing_column", excerpt(line), f"no key {column!r}; there are: {keys}")
    text = value[column]
    if text is None:
        return BadDocument(row, "null_text", excerpt(line), f"{column!r} is null")
    if not isinstance(text, str):
        return BadDocument(row, "not_text", excerpt(line), f"{column!r} is a {_kind(text)}")
    return value


def _unreadable(line: bytes, row: int, error: orjson.JSONDecodeError) -> BadDocument:
    """Tell broken UTF-8 (raw bytes, or escapes of half a surrogate pair) from broken JSON."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return invalid_utf8(row, line)
    if "surrogate" in error.msg:
        return BadDocument(row, "invalid_utf8", excerpt(line), f"half a surrogate pair{_where(error)}")
    return BadDocument(row, "broken_json", excerpt(line), f"{error.msg}{_where(error)}")


def _where(error: orjson.JSONDecodeError) -> str:
    """Say where in the line; orjson's own words count lines too, and each line is all that it sees."""
    return f" at character {error.pos + 1}"


def _kind(value: object) -> str:
    names = {"dict": "object", "list": "list", "str": "string", "bool": "boolean", "NoneType": "null"}
    return names.get(type(value).__name__, "number")


def _ids(objects: list[dict[str, Any]], column: str | None) -> ArrowArray | None:
    if column is None:
        return None
    return pa.array([_id(one.get(column)) for one in objects], pa.large_string())


def _id(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
