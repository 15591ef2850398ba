"""JSON: an object per line, an array of objects, or objects one after the other, with the text under one key.

A kernel reads whole blocks of lines (`tasks.kernels.json_lines`). Lines that it skips, because they are
unusual or bad, are parsed by orjson one by one, and those that orjson rejects by Python's parser: only the
text must be valid UTF-8 without lone surrogates, and other members may hold any number, NaN or Infinity. Of
equal keys the last counts. An id that is not a string is written as JSON, with all digits.

Objects of an array, or one after the other, may have any layout, and a file may be larger than memory. If the
text between them is not JSON, the rest of the file is one bad document.
"""

import codecs
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from tokmill.tasks.formats.text.compression import BLOCK_BYTES
from tokmill.tasks.formats.text.content import NEWLINE, Span, content, whole_rows
from tokmill.tasks.formats.text.documents import (
    ArrowArray,
    Bytes,
    FileBatch,
    empty_file_batch,
    file_batch,
    is_utf8,
)
from tokmill.tasks.formats.text.quarantine import (
    BadDocument,
    BrokenFileError,
    excerpt,
    invalid_utf8,
    too_long,
)
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

_WHITE = " \t\r\n"
# Whole numbers of this size, and with so many digits, may have more than 64 bits.
_BEYOND_64_BITS, _MANY_DIGITS = 2.0**63, 19
_NOTHING: Bytes = np.empty(0, dtype=np.uint8)
_KINDS = {"dict": "object", "list": "list", "str": "string", "bool": "boolean", "NoneType": "null"}


def read_jsonl(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's lines; all are valid UTF-8."""
    row, buffers = span.first_row, None
    limit = options.max_document_bytes
    blocks = whole_rows(content(path, span, options.encoding), NEWLINE, limit)
    for block, position in (part for whole in blocks for part in _parts(*whole, limit)):
        if len(block) > limit and block.find(b"\n", 0, limit + 1) < 0:
            yield empty_file_batch([too_long(row, block, limit)])
            row += 1
            continue
        buffers = _buffers(len(block), len(options.text_column.encode()), buffers)
        reader = _BlockReader(block, row, options, buffers)
        batch = [reader.batch(position)]
        row += int(buffers.progress[NUM_LINES])
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
    long = np.flatnonzero(ends - starts > limit)
    bounds = sorted({0, *starts[long].tolist(), *ends[long].tolist(), len(block)})
    yield from ((block[start:end], position + start) for start, end in pairwise(bounds))


class _BlockReader:
    """Reads a block of whole lines, which begins with line number `row`, into buffers."""

    def __init__(self, block: bytearray, row: int, options: ReadOptions, buffers: Documents) -> None:
        self._block, self._row, self._documents = block, row, buffers
        self._column, self._id_column = options.text_column, options.id_column
        self._bad: list[BadDocument] = []
        self._ids: dict[int, str | None] = {}  # of lines that the kernel skipped
        self._data: Bytes = np.frombuffer(block, dtype=np.uint8)
        names = (self._column, self._id_column or "")
        column, id_column = (np.frombuffer(name.encode(), dtype=np.uint8) for name in names)
        is_valid = is_utf8(self._data, np.array([0, len(block)], dtype=np.int64))
        while not (is_valid and read_lines(self._data, column, id_column, buffers)):
            self._read_line()
            if buffers.progress[POSITION] == len(block):
                return

    def _read_line(self) -> None:
        """Read one line with orjson."""
        progress = self._documents.progress
        start = int(progress[POSITION])
        end = self._block.find(b"\n", start) + 1 or len(self._block)
        line = bytes(self._block[start:end]).removesuffix(b"\n")
        if line.strip(b" \t\r"):
            value = _parsed(line, self._row + int(progress[NUM_LINES]), self._column)
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
            self._ids[document] = _id_of(value, self._id_column, bytes(self._block[start:end]))

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
        documents, spans = self._documents, self._documents.ids[: 2 * number].reshape(-1, 2)
        if not self._ids and not documents.progress[NUM_ODD_IDS]:
            ends = documents.id_ends[: number + 1].copy()
            valid = np.packbits(spans[:, 1] > 0, bitorder="little")
            buffers = (ends, documents.id_text[: ends[-1]].copy(), valid)
            return pa.LargeStringArray.from_buffers(number, *map(pa.py_buffer, buffers))
        values = [
            _as_id(orjson.loads(self._block[start:end])) if end else None for start, end in spans.tolist()
        ]
        for document in np.flatnonzero(spans[:, 1] - spans[:, 0] >= _MANY_DIGITS).tolist():
            written = b'{"":%b}' % bytes(self._data[slice(*spans[document])])
            values[document] = _id_of(orjson.loads(written), "", written)
        for document, value in self._ids.items():
            values[document] = value
        return pa.array(values, pa.large_string())


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


def _id_of(value: dict[str, Any], column: str, line: bytes) -> str | None:
    """Return the id of the object on a line, with all digits: orjson rounds whole numbers of over 64 bits."""
    own = value.get(column)
    if isinstance(own, float) and abs(own) >= _BEYOND_64_BITS:
        own = json.loads(line.decode("utf-8", "surrogateescape"), parse_int=str)[column]
    return _as_id(own)


def _as_id(value: object) -> str | None:
    """Return an id as text: strings as they are, but lone surrogates escaped; other values as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    try:
        return None if value is None else orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # orjson parses deeper nesting than it writes
        return None


def _parsed(line: bytes, row: int, column: str) -> dict[str, Any] | BadDocument:
    """Return a line's object, or a bad document if it is not an object with a text."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            value = _LENIENT.decode(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            # orjson's own message would name line 1, as it gets single lines
            return _bad_text(line, row, "broken_json", f"{error.msg} at character {error.pos + 1}")
    if not isinstance(value, dict):
        reason, detail = "not_an_object", f"the line holds a {_kind(value)}"
    elif column not in value:
        keys = ", ".join(map(excerpt, nearest(column, list(value)))) or "none"
        reason, detail = "missing_column", f"no key {column!r}; there are: {keys}"
    elif value[column] is None:
        reason, detail = "null_text", f"{column!r} is null"
    elif not isinstance(value[column], str):
        reason, detail = "not_text", f"{column!r} is a {_kind(value[column])}"
    else:
        try:
            value[column].encode()
        except UnicodeEncodeError as error:
            return _bad_text(
                line, row, "invalid_utf8", f"half a surrogate pair at character {error.start + 1}"
            )
        return value
    return BadDocument(row, reason, excerpt(line), detail)


def _number(written: str) -> Any:
    """Return a number as orjson reads it, or as it is written if orjson cannot hold it."""
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return orjson.Fragment(written)


_LENIENT = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_number)


def _bad_text(line: bytes, row: int, reason: str, detail: str) -> BadDocument:
    """Describe a line by its first invalid byte, or as it is said if all are valid."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return invalid_utf8(row, line)
    return BadDocument(row, reason, excerpt(line), detail)


def _kind(value: object) -> str:
    return _KINDS.get(type(value).__name__, "number")


def read_json(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's elements of an array, or of its objects."""
    held: list[tuple[int, bytes]] = []
    num_bytes = 0
    try:
        for row, element in enumerate(_elements(_Text(path, span, options))):
            if span.is_past(row):
                break
            if row >= span.first_row:
                held.append((row, element))
                num_bytes += len(element)
            if num_bytes >= BLOCK_BYTES:
                yield _file_batch(held, options)
                held, num_bytes = [], 0
    except BrokenFileError:
        if held:
            yield _file_batch(held, options)
        raise
    if held:
        yield _file_batch(held, options)


def _file_batch(held: list[tuple[int, bytes]], options: ReadOptions) -> FileBatch:
    texts: dict[int, bytes] = {}
    ids: list[str | None] = []
    bad: list[BadDocument] = []
    for row, element in held:
        value = _parsed(element, row, options.text_column)
        if len(element) > options.max_document_bytes:
            bad.append(too_long(row, element, options.max_document_bytes))
        elif isinstance(value, BadDocument):
            bad.append(value)
        else:
            texts[row] = value[options.text_column].encode()
            ids.append(None if options.id_column is None else _id_of(value, options.id_column, element))
    column = None if options.id_column is None else pa.array(ids, pa.large_string())
    return file_batch([*texts.values()], np.array([*texts], dtype=np.int64), ids=column, bad=tuple(bad))


def _elements(text: "_Text") -> Iterator[bytes]:
    """Yield the elements of the array, or the objects, as they are written in the file."""
    first = following = text.after_white()
    if first not in ("[", "{", ""):
        raise text.broken("the file is neither an array nor objects")
    while first == "{" and following:
        yield text.value()
        if text.after_white() == ",":
            text.at += 1
        following = text.after_white()
    if first != "[":
        return
    text.at += 1
    is_closed = text.after_white() == "]"
    while not is_closed:
        yield text.value()
        if (following := text.after_white()) not in (",", "]"):
            raise text.broken("expected , or ] after an element")
        if not (is_closed := following == "]"):
            text.at += 1
            text.after_white()
    text.at += 1
    if text.after_white():
        raise text.broken("text follows the array")


class _Text:
    """The text of a file, loaded in parts; bytes that are not UTF-8 become surrogates.

    Attributes:
        at: the place of the next character in the loaded part.
    """

    def __init__(self, path: Location, span: Span, options: ReadOptions) -> None:
        self._limit = options.max_document_bytes
        self._blocks = content(path, span.whole_file, options.encoding)
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode  # of any number of digits
        self._text = ""
        self.at = 0
        self._is_whole = False

    def _load(self, num_chars: int = 1) -> None:
        """Load at least `num_chars` more characters, or the rest of the file."""
        parts = [self._text[self.at :]]
        while num_chars > 0 and not self._is_whole:
            block = next(self._blocks, None)
            self._is_whole = block is None
            parts.append(self._decode.decode(block[0] if block else b"", final=block is None))
            num_chars -= len(parts[-1])
        self._text, self.at = "".join(parts), 0

    def after_white(self) -> str:
        """Move to the next character that is not white space, and return it; "" at the end."""
        while True:
            while self.at < len(self._text) and self._text[self.at] in _WHITE:
                self.at += 1
            if self.at < len(self._text) or self._is_whole:
                return self._text[self.at : self.at + 1]
            self._load()

    def broken(self, problem: str, reason: str = "broken_json") -> BrokenFileError:
        return BrokenFileError(reason, problem, self._text[self.at : self.at + 200])

    def value(self) -> bytes:
        """Return the next value as it is written in the file, and move past it."""
        while True:
            try:
                _, end = self._scan(self._text, self.at)
                if end < len(self._text) or self._is_whole:  # a number may continue
                    break
                problem = ""
            except (json.JSONDecodeError, RecursionError) as error:
                problem = str(error).split(":")[0] or "nested too deeply"
            if self._is_whole:
                raise self.broken(problem)
            if len(self._text) - self.at > self._limit:
                detail = f"over {self._limit:,} bytes, or not JSON; what comes after it was not read"
                raise self.broken(detail, "too_long")
            self._load(len(self._text) - self.at)  # double the text, so that few attempts fail
        start, self.at = self.at, end
        return self._text[start:end].encode("utf-8", "surrogateescape")
