"""Detects a file's format and its text column from the first record.

Only for drafting a profile; a run never guesses.
"""

import codecs
import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.compression import BrokenArchiveError, blocks
from tokmill.tasks.formats.text.opening import size_of
from tokmill.tasks.formats.text.sources import UTF_8, ReadOptions, format_of, inner_suffix
from tokmill.tasks.remote.location import Location

_TEXT_NAMES = ("text", "content", "body", "document", "raw_content", "article", "sentence", "message")
_ID_NAMES = ("id", "doc_id", "document_id", "uuid", "url")
_END_OF_DOCUMENT = "<|endoftext|>"
_MANY_BYTES = 16 << 20
# The first record must be within these.
_BEGINNING_BYTES = 4 << 20


@dataclass(frozen=True)
class Seen:
    """What was detected in a source's files.

    Attributes:
        options: keys and values for the source's table in the draft.
        remark: the reason for the choice, in a few words.
    """

    options: Mapping[str, Any]
    remark: str


def sniff_all(paths: Sequence[Location], encoding: str = UTF_8) -> Seen:
    """Inspect the first of a source's files; if formats differ, each file's suffix decides.

    Raises:
        SourceError: a suffix is not of a text format, or the first file cannot be read.
    """
    formats = sorted({format_of(path.name, ReadOptions()) for path in paths})
    return sniff(paths[0], encoding) if len(formats) == 1 else Seen({"format": "auto"}, " and ".join(formats))


def sniff(path: Location, encoding: str = UTF_8) -> Seen:
    """Inspect the beginning of a file.

    Raises:
        SourceError: the suffix is not of a text format, no column has text, or the file cannot be read.
    """
    kind = format_of(path.name, ReadOptions())
    if kind == "text":
        return _seen_text(path, encoding)
    record = _first_record(path, kind, encoding)
    if not record:
        return Seen({"format": kind}, "no record found")
    chats = [name for name, value in record.items() if _is_chat(value)]
    text, why = _text_column(record)
    if text is None:
        problem = f"{chats[0]!r} has chats, lists of messages" if chats else "no column has text"
        raise SourceError(
            f"{path.name}: {problem}, but a document is one text; write the text to a column first "
            f"(columns: {', '.join(record)})"
        )
    identifier = next((name for name in _ID_NAMES if name in record and name != text), None)
    options = {"format": kind, "text_column": text} | ({"id_column": identifier} if identifier else {})
    seen = f"columns {', '.join(record)}; {text} {why}"
    return Seen(options, seen + "".join(f"; {name} has chats and is left out" for name in chats))


def _seen_text(path: Location, encoding: str) -> Seen:
    start = _beginning(path, encoding)
    if _END_OF_DOCUMENT in start:
        options = {"format": "delimited", "delimiter": _END_OF_DOCUMENT}
        return Seen(options, f"{_END_OF_DOCUMENT} between documents")
    if size_of(path) > _MANY_BYTES and "\n" in start:
        return Seen({"format": "lines"}, f"over {_MANY_BYTES >> 20} MiB: one document per line")
    return Seen({"format": "text"}, "one document per file")


def _first_record(path: Location, kind: str, encoding: str) -> dict[str, object]:
    """Return the first record; for Parquet and Arrow, its columns with an example of their type."""
    if kind in {"parquet", "arrow"}:
        return _schema(path, kind)
    start = _beginning(path, encoding)
    if kind == "jsonl":
        return _json_object(next((line for line in start.splitlines() if line.strip()), ""))
    if kind == "json":
        return _json_object(start.lstrip().removeprefix("[").lstrip())
    delimiter = "\t" if inner_suffix(path.name) == ".tsv" else ","
    rows = (row for row in csv.reader(io.StringIO(start, newline=""), delimiter=delimiter) if row)
    try:
        header = next(rows, [])
        return dict(zip(header, next(rows, [None] * len(header)), strict=False))
    except csv.Error:  # a field is longer than the beginning
        return dict.fromkeys(header, "")


def _json_object(text: str) -> dict[str, object]:
    """Return the JSON object at the beginning of a text, or an empty one."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):  # a number with thousands of digits is a ValueError
        return {}
    return value if isinstance(value, dict) else {}


def _schema(path: Location, kind: str) -> dict[str, object]:
    """Return the columns, each with an example of its type: an empty text, a chat, or None."""
    import pyarrow as pa  # noqa: PLC0415 - not needed to load a profile

    from tokmill.tasks.formats.text.columnar import BrokenFileError, schema_of  # noqa: PLC0415

    try:
        schema = schema_of(path, kind)
    except BrokenFileError:
        return {}

    def example(kind: pa.DataType) -> object:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return ""
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return [{}] if is_list and pa.types.is_struct(kind.value_type) else None

    return {field.name: example(field.type) for field in schema}


def _is_chat(value: object) -> bool:
    """Whether a value is a list of messages, as in columns named messages or conversations."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def _text_column(record: Mapping[str, object]) -> tuple[str | None, str]:
    """Return a column with a usual name, else the one with the longest text; and the reason."""
    texts = {name: value for name, value in record.items() if isinstance(value, str)}
    if not texts:
        # A column without a value in the first record may have text in others.
        empty = next((name for name in _TEXT_NAMES if name in record and record[name] is None), None)
        return empty, "by its name"
    if usual := next((name for name in _TEXT_NAMES if name in texts), None):
        return usual, "by its name"
    if len(texts) == 1:
        return next(iter(texts)), "is the only one with text"
    return max(texts, key=lambda name: len(texts[name])), "has the longest text in the first record"


def _beginning(path: Location, encoding: str) -> str:
    """Return the first characters of a file.

    Raises:
        SourceError: they are not UTF-8.
    """
    beginning = b""
    with suppress(BrokenArchiveError):
        for block in blocks(path, encoding=encoding):
            beginning += block
            if len(beginning) >= _BEGINNING_BYTES:
                break
    try:
        return codecs.getincrementaldecoder("utf-8-sig")("strict").decode(beginning)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} is not UTF-8 (byte 0x{beginning[error.start]:02x} at {error.start}); give its "
            "encoding, e.g. --encoding shift_jis, or exclude it"
        ) from error
