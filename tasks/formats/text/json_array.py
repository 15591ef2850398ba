"""JSON files with one array of objects, or objects one after the other, with the text under one key.

Objects may have any layout: printed over several lines, on one line, with or without commas between them.
They are read one by one, so that a file may be larger than memory. Each is parsed like a line of a JSON lines
file; its row is its index in the file. If the text between elements is not JSON, the start of the next
element is unknown, and the rest of the file is one bad document.
"""

import codecs
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tokmill.tasks.formats.text.compression import BLOCK_BYTES, BrokenArchiveError
from tokmill.tasks.formats.text.delimited import Span, content
from tokmill.tasks.formats.text.documents import FileBatch, empty_file_batch, file_batch
from tokmill.tasks.formats.text.jsonl import id_of, parsed
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, too_long
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location

_WHITE = " \t\r\n"


class _BrokenError(Exception):
    """The array cannot be read further."""

    def __init__(self, reason: str, seen: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.seen = seen


def read_json(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's elements."""
    last = None if span.num_rows is None else span.first_row + span.num_rows
    held: list[tuple[int, bytes]] = []
    num_bytes, next_row = 0, 0
    try:
        for element in _elements(path, span, options):
            if next_row >= span.first_row:
                held.append((next_row, element))
                num_bytes += len(element)
            next_row += 1
            if last is not None and next_row >= last:
                break
            if num_bytes >= BLOCK_BYTES:
                yield _file_batch(held, options)
                held, num_bytes = [], 0
    except BrokenArchiveError:
        if held:
            yield _file_batch(held, options)
        raise
    except _BrokenError as error:
        if held:
            yield _file_batch(held, options)
        yield empty_file_batch([BadDocument(next_row, error.reason, excerpt(error.seen), str(error))])
        return
    if held:
        yield _file_batch(held, options)


def _file_batch(held: list[tuple[int, bytes]], options: ReadOptions) -> FileBatch:
    kept: list[int] = []
    texts: list[bytes] = []
    ids: list[str | None] = []
    bad: list[BadDocument] = []
    for row, element in held:
        value = parsed(element, row, options.text_column)
        if len(element) > options.max_document_bytes:
            bad.append(too_long(row, element, options.max_document_bytes))
        elif isinstance(value, BadDocument):
            bad.append(value)
        else:
            kept.append(row)
            texts.append(value[options.text_column].encode())
            ids.append(None if options.id_column is None else id_of(value, options.id_column, element))
    found = None if options.id_column is None else pa.array(ids, pa.large_string())
    return file_batch(texts, np.array(kept, dtype=np.int64), ids=found, bad=tuple(bad))


def _elements(path: Location, span: Span, options: ReadOptions) -> Iterator[bytes]:
    """Yield the elements of the array, or the objects, as they are written in the file."""
    text = _Text(path, span, options)
    first = text.after_white()
    if not first:
        return
    if first not in ("[", "{"):
        raise _BrokenError("broken_json", text.ahead(), "the file is neither an array nor objects")
    if first == "{":
        while first:
            yield text.value()
            first = text.after_separator()
        return
    text.skip()
    if text.after_white() == "]":
        text.skip()
    else:
        while True:
            yield text.value()
            if (following := text.after_white()) not in (",", "]"):
                raise _BrokenError("broken_json", text.ahead(), "expected , or ] after an element")
            text.skip()
            if following == "]":
                break
            text.after_white()
    if text.after_white():
        raise _BrokenError("broken_json", text.ahead(), "text follows the array")


class _Text:
    """The text of a file, loaded in parts; bytes that are not UTF-8 become surrogates."""

    def __init__(self, path: Location, span: Span, options: ReadOptions) -> None:
        self._limit = options.max_document_bytes
        self._blocks = content(path, span.whole_file, options.encoding)
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode  # of any number of digits
        self._text = ""
        self._at = 0
        self._is_whole = False

    def _more(self, num_chars: int = 1) -> None:
        """Load at least `num_chars` more characters, or the rest of the file."""
        parts = [self._text[self._at :]]
        while num_chars > 0 and not self._is_whole:
            block = next(self._blocks, None)
            self._is_whole = block is None
            parts.append(self._decode.decode(block[0] if block else b"", final=block is None))
            num_chars -= len(parts[-1])
        self._text, self._at = "".join(parts), 0

    def after_white(self) -> str:
        """Move to the next character that is not white space, and return it; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _WHITE:
                self._at += 1
            if self._at < len(self._text) or self._is_whole:
                return self._text[self._at : self._at + 1]
            self._more()

    def after_separator(self) -> str:
        """Move past white space and a comma, if there is one, as `after_white` does."""
        if self.after_white() == ",":
            self.skip()
        return self.after_white()

    def skip(self) -> None:
        self._at += 1

    def ahead(self) -> str:
        return self._text[self._at : self._at + 200]

    def value(self) -> bytes:
        """Return the next value as it is written in the file, and move past it."""
        while True:
            try:
                _, end = self._scan(self._text, self._at)
                if end < len(self._text) or self._is_whole:  # a number may continue
                    break
                problem = ""
            except (json.JSONDecodeError, RecursionError) as error:
                problem = str(error).split(":")[0] or "nested too deeply"
            if self._is_whole:
                raise _BrokenError("broken_json", self.ahead(), problem)
            if len(self._text) - self._at > self._limit:
                detail = f"over {self._limit:,} bytes, or not JSON; what comes after it was not read"
                raise _BrokenError("too_long", self.ahead(), detail)
            self._more(len(self._text) - self._at)  # double the text, so that few attempts fail
        start, self._at = self._at, end
        return self._text[start:end].encode("utf-8", "surrogateescape")
