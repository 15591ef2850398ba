"""JSON lines: one object per line, with the text under one key.

A kernel reads whole blocks of lines (`tasks.kernels.json_lines`). Lines that it skips, because they are
unusual or bad, are parsed by orjson one by one, and those that orjson rejects by Python's parser: only the
text must be valid UTF-8 without lone surrogates, and other members may hold any number, NaN or Infinity. The
row of a document is the number of its line, from 0. Lines of white space are not documents. An id that is not
a string is written as JSON, whole numbers with all their digits; it is null if it is missing, null, or nested
more than 254 deep. If a key occurs twice, the last one counts.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.formats.text.content import Span, content
from tokmill.tasks.formats.text.documents import ArrowArray, Bytes, FileBatch, Ints, empty_file_batch, is_utf8
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, invalid_utf8, too_long
from tokmill.tasks.formats.text.rows import NEWLINE, whole_rows
from tokmill.tasks.formats.text.sources import ReadOptions, nearest
from tokmill.tasks.kernels.json_lines import (
    NUM_BYTES,
    NUM_DOCUMENTS,
    NUM_LINES,
    NUM_ODD_IDS,
    POSITION,
    SLACK,
    Documents,
    read_lines,
)
from tokmill.tasks.remote.location import Location


def read_jsonl(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's lines; all are valid UTF-8."""
    row, buffers = span.first_row, None
    limit = options.max_document_bytes
    blocks = whole_rows(content(path, span, options.encoding), NEWLINE, limit)
    for block, position in (part for whole in blocks for part in _parts(*whole, limit)):
        if len(block) > limit and block.find(b"\n", 0, limit + 1) < 0:
            yield empty_file_batch([too_long(row, bytes(block[:1000]), limit)])
            row += 1
            continue
        buffers = _buffers(len(block), len(options.text_column.encode()), buffers)
        reader = _BlockReader(block, row, options, buffers)
        batch = [reader.batch(position)]
        row = reader.next_row
        del block, reader
        buffers = buffers._replace(text=_NOTHING)  # the batch owns the text now
        yield batch.pop()


def _parts(block: bytearray, position: int, limit: int) -> Iterator[tuple[bytearray, int]]:
    """Yield a block of lines, with each line longer than `limit` in a part of its own."""
    if len(block) <= limit:
        yield block, position
        return
    ends = np.append(NEWLINE.spans(block)[1], len(block))
    starts = np.concatenate(([0], ends[:-1]))
    begun = 0
    for index in np.flatnonzero(ends - starts > limit).tolist():
        start, end = int(starts[index]), int(ends[index])
        for first, last in ((begun, start), (start, end)):
            if last > first:
                yield block[first:last], position + first
        begun = end
    if begun < len(block):
        yield block[begun:], position + begun


class _BlockReader:
    """Reads a block of whole lines, which begins with line number `row`; `next_row` is that after it."""

    def __init__(self, block: bytearray, row: int, options: ReadOptions, buffers: Documents) -> None:
        self._block = block
        self._row = row
        self._column = options.text_column
        self._id_column = options.id_column
        self._bad: list[BadDocument] = []
        self._ids: dict[int, str | None] = {}
        self._data: Bytes = np.frombuffer(block, dtype=np.uint8)
        self._documents = buffers
        self._read()
        self.next_row = row + int(buffers.progress[NUM_LINES])

    def _read(self) -> None:
        column, id_column = _name(self._column), _name(self._id_column or "")
        is_valid = is_utf8(self._data, np.array([0, len(self._data)], dtype=np.int64))
        while not (is_valid and read_lines(self._data, column, id_column, self._documents)):
            self._read_line()
            if self._documents.progress[POSITION] == len(self._data):
                return

    def _read_line(self) -> None:
        """Read one line with orjson."""
        progress = self._documents.progress
        start = int(progress[POSITION])
        newline = self._block.find(b"\n", start)
        end = newline + 1 or len(self._block)
        line = bytes(self._block[start:end]).removesuffix(b"\n")
        if line.strip(b" \t\r"):
            value = parsed(line, self._row + int(progress[NUM_LINES]), self._column)
            if isinstance(value, BadDocument):
                self._bad.append(value)
            else:
                self._add(value, start, end)
        progress[POSITION], progress[NUM_LINES] = end, progress[NUM_LINES] + 1

    def _add(self, value: dict[str, Any], start: int, end: int) -> None:
        """Add the document of a line, as the kernel would; its id is kept separately."""
        documents = self._documents
        document = int(documents.progress[NUM_DOCUMENTS])
        text = value[self._column].encode()
        first, after = int(documents.ends[document]), int(documents.ends[document]) + len(text)
        documents.text[first:after] = np.frombuffer(text, dtype=np.uint8)
        documents.ends[document + 1] = after
        documents.lines[document] = documents.progress[NUM_LINES]
        documents.bounds[2 * document : 2 * document + 2] = start, end
        documents.ids[2 * document : 2 * document + 2] = 0
        documents.id_ends[document + 1] = documents.id_ends[document]
        documents.progress[NUM_DOCUMENTS], documents.progress[NUM_BYTES] = document + 1, after
        if self._id_column is not None:
            self._ids[document] = id_of(value, self._id_column, bytes(self._block[start:end]))

    def batch(self, position: int) -> FileBatch:
        """Return the documents read; `position` is that of the block in the file's content."""
        documents = self._documents
        number = int(documents.progress[NUM_DOCUMENTS])
        return FileBatch(
            data=documents.text[: documents.progress[NUM_BYTES]],
            offsets=documents.ends[: number + 1].copy(),
            rows=documents.lines[:number] + self._row,
            bounds=documents.bounds[: 2 * number].reshape(-1, 2) + position,
            ids=None if self._id_column is None else self._id_array(number),
            bad=tuple(self._bad),
        )

    def _id_array(self, number: int) -> ArrowArray:
        spans = self._documents.ids[: 2 * number].reshape(-1, 2)
        if not self._ids and not self._documents.progress[NUM_ODD_IDS]:
            ends = self._documents.id_ends[: number + 1].copy()
            return _strings(self._documents.id_text[: ends[-1]].copy(), ends, spans[:, 1] > 0)
        values = [
            as_id(orjson.loads(self._block[start:end])) if end else None for start, end in spans.tolist()
        ]
        for document in np.flatnonzero(spans[:, 1] - spans[:, 0] >= _MANY_DIGITS).tolist():
            written = b'{"":%b}' % bytes(self._data[slice(*spans[document])])
            values[document] = id_of(orjson.loads(written), "", written)
        for document, value in self._ids.items():
            values[document] = value
        return pa.array(values, pa.large_string())


# Whole numbers of this size, and with so many digits, may have more than 64 bits.
_BEYOND_64_BITS, _MANY_DIGITS = 2.0**63, 19
_NOTHING: Bytes = np.empty(0, dtype=np.uint8)


def _buffers(num_bytes: int, column_bytes: int, before: Documents | None) -> Documents:
    """Return buffers for a block; those of the previous block are reused if they are large enough."""
    most = (num_bytes + 1) // (len('{"":""}\n') + column_bytes) + 1  # one more, for a line that proves bad
    text = np.empty(num_bytes + SLACK, dtype=np.uint8)
    if before is not None and len(before.lines) >= most and len(before.id_text) >= len(text):
        before.progress[:] = 0
        return before._replace(text=text)
    return Documents(
        progress=np.zeros(5, dtype=np.int64),
        text=text,
        ends=np.zeros(most + 1, dtype=np.int64),
        lines=np.empty(most, dtype=np.int64),
        bounds=np.empty(2 * most, dtype=np.int64),
        ids=np.empty(2 * most, dtype=np.int64),
        id_text=np.empty(num_bytes + SLACK, dtype=np.uint8),
        id_ends=np.zeros(most + 1, dtype=np.int64),
    )


def _name(name: str) -> Bytes:
    return np.frombuffer(name.encode(), dtype=np.uint8)


def _strings(text: Bytes, ends: Ints, present: NDArray[np.bool_]) -> ArrowArray:
    valid = np.packbits(present, bitorder="little")
    buffers = (pa.py_buffer(ends), pa.py_buffer(text), pa.py_buffer(valid))
    return pa.LargeStringArray.from_buffers(len(present), *buffers)


def id_of(value: dict[str, Any], column: str, line: bytes) -> str | None:
    """Return the id of the object on a line, with all digits: orjson rounds whole numbers of over 64 bits."""
    own = value.get(column)
    if isinstance(own, float) and abs(own) >= _BEYOND_64_BITS:
        own = json.loads(line.decode("utf-8", "surrogateescape"), parse_int=str)[column]
    return as_id(own)


def parsed(line: bytes, row: int, column: str) -> dict[str, Any] | BadDocument:
    """Return a line's object, or a bad document if it is not an object with a text."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            value = _LENIENT.decode(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            return _described(line, row, error)
    if not isinstance(value, dict):
        return BadDocument(row, "not_an_object", excerpt(line), f"the line holds a {_kind(value)}")
    if column not in value:
        keys = ", ".join(map(excerpt, nearest(column, list(value)))) or "none"
        return BadDocument(row, "missing_column", excerpt(line), f"no key {column!r}; there are: {keys}")
    text = value[column]
    if text is None:
        return BadDocument(row, "null_text", excerpt(line), f"{column!r} is null")
    if not isinstance(text, str):
        return BadDocument(row, "not_text", excerpt(line), f"{column!r} is a {_kind(text)}")
    return value if is_encodable(text) else _described(line, row, text)


def _number(written: str) -> Any:
    """Return a number as orjson reads it, or as it is written if orjson cannot hold it."""
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return orjson.Fragment(written)


_LENIENT = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_number)


def is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _described(line: bytes, row: int, problem: str | orjson.JSONDecodeError) -> BadDocument:
    """Describe a line that no parser reads, or whose text has invalid bytes or half a surrogate pair."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return invalid_utf8(row, line)
    if isinstance(problem, str):
        place = next(index for index, one in enumerate(problem, start=1) if not is_encodable(one))
        detail = f"half a surrogate pair at character {place}"
        return BadDocument(row, "invalid_utf8", excerpt(line), detail)
    # orjson's own message would name line 1, as it gets single lines
    detail = f"{problem.msg} at character {problem.pos + 1}"
    return BadDocument(row, "broken_json", excerpt(line), detail)


def _kind(value: object) -> str:
    names = {"dict": "object", "list": "list", "str": "string", "bool": "boolean", "NoneType": "null"}
    return names.get(type(value).__name__, "number")


def as_id(value: object) -> str | None:
    """Return an id as text: strings as they are, but lone surrogates escaped; other values as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    try:
        return None if value is None else orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # orjson parses deeper nesting than it writes
        return None
