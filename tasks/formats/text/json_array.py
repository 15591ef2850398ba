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

from tokmill.tasks.formats.text.compression import BLOCK_BYTES
from tokmill.tasks.formats.text.content import Span, content
from tokmill.tasks.formats.text.documents import FileBatch, file_batch
from tokmill.tasks.formats.text.jsonl import id_of, parsed
from tokmill.tasks.formats.text.quarantine import BadDocument, BrokenFileError, too_long
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location

_WHITE = " \t\r\n"


def read_json(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's elements."""
    stop = None if span.num_rows is None else span.first_row + span.num_rows
    held: list[tuple[int, bytes]] = []
    num_bytes = 0
    broken: BrokenFileError | None = None
    try:
        for row, element in enumerate(_elements(_Text(path, span, options))):
            if row >= span.first_row:
                held.append((row, element))
                num_bytes += len(element)
            if stop is not None and row + 1 >= stop:
                break
            if num_bytes >= BLOCK_BYTES:
                yield _file_batch(held, options)
                held, num_bytes = [], 0
    except BrokenFileError as error:
        broken = error
    if held:
        yield _file_batch(held, options)
    if broken is not None:
        raise broken


def _file_batch(held: list[tuple[int, bytes]], options: ReadOptions) -> FileBatch:
    texts: dict[int, bytes] = {}
    ids: list[str | None] = []
    bad: list[BadDocument] = []
    for row, element in held:
        value = parsed(element, row, options.text_column)
        if len(element) > options.max_document_bytes:
            bad.append(too_long(row, element, options.max_document_bytes))
        elif isinstance(value, BadDocument):
            bad.append(value)
        else:
            texts[row] = value[options.text_column].encode()
            ids.append(None if options.id_column is None else id_of(value, options.id_column, element))
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
