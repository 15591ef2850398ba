"""What a file seems to hold: its format, and which of its columns is the text.

A look at the first record, for the first draft of a profile; a run never guesses.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.formats.compression import BrokenArchiveError, blocks
from tasks.formats.sources import ReadOptions, format_of, inner_suffix

_TEXT_NAMES = ("text", "content", "body", "document", "raw_content", "article", "sentence", "message")
_ID_NAMES = ("id", "doc_id", "document_id", "uuid", "url")
_END_OF_DOCUMENT = "<|endoftext|>"
_MANY_BYTES = 16 << 20
# The first record must be within these.
_BEGINNING_BYTES = 4 << 20


@dataclass(frozen=True)
class Seen:
    """What was seen of a source.

    Attributes:
        options: keys of the source's table that the draft should say, with their values.
        remark: what the guess rests on, in a few words.
    """

    options: Mapping[str, str]
    remark: str


def sniff_all(paths: Sequence[Path]) -> Seen:
    """Look at the first of a source's files; where they differ in format, each file's suffix decides.

    Raises:
        SourceError: a suffix says that a file holds no text, or the first file cannot be read.
    """
    formats = sorted({format_of(path.name, ReadOptions()) for path in paths})
    return sniff(paths[0]) if len(formats) == 1 else Seen({"format": "auto"}, " and ".join(formats))


def sniff(path: Path) -> Seen:
    """Look at the beginning of a file.

    Raises:
        SourceError: the suffix says that the file holds no text, or it cannot be read.
    """
    kind = format_of(path.name, ReadOptions())
    if kind == "text":
        return _seen_text(path)
    record = _first_record(path, kind)
    if not record:
        return Seen({"format": kind}, "no record to look at")
    text, identifier = _text_column(record), next((name for name in _ID_NAMES if name in record), None)
    options = {"format": kind, "text_column": text} | ({"id_column": identifier} if identifier else {})
    return Seen(options, f"columns {', '.join(record)}")


def _seen_text(path: Path) -> Seen:
    start = _beginning(path)
    if _END_OF_DOCUMENT in start:
        options = {"format": "delimited", "delimiter": _END_OF_DOCUMENT}
        return Seen(options, f"{_END_OF_DOCUMENT} between documents")
    if path.stat().st_size > _MANY_BYTES and "\n" in start:
        return Seen({"format": "lines"}, "a large file: a document a line")
    return Seen({"format": "text"}, "a document a file")


def _first_record(path: Path, kind: str) -> dict[str, object]:
    """Return the first record, or its columns with None where values are not worth reading."""
    if kind in {"parquet", "arrow"}:
        return _schema(path, kind)
    lines = [line for line in _beginning(path).splitlines() if line.strip()]
    if not lines:
        return {}
    if kind == "jsonl":
        return _json_object(lines[0])
    rows = csv.reader(
        io.StringIO("\n".join(lines[:2])), delimiter="\t" if inner_suffix(path.name) == ".tsv" else ","
    )
    header, *first = rows
    return dict(zip(header, first[0] if first else [None] * len(header), strict=False))


def _json_object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _schema(path: Path, kind: str) -> dict[str, object]:
    """Return the columns; those that hold strings have an empty one for a value."""
    import pyarrow as pa  # noqa: PLC0415 - not needed to load a profile
    import pyarrow.dataset as ds  # noqa: PLC0415

    try:
        schema = ds.dataset(path, format="parquet" if kind == "parquet" else "ipc").schema
    except (pa.ArrowInvalid, OSError):
        return {}
    return {
        field.name: "" if pa.types.is_string(field.type) or pa.types.is_large_string(field.type) else None
        for field in schema
    }


def _text_column(record: Mapping[str, object]) -> str:
    """Return a column with one of the usual names, else the one with the longest text, else `text`."""
    usual = next((name for name in _TEXT_NAMES if name in record), None)
    texts = {name: value for name, value in record.items() if isinstance(value, str)}
    return usual or max(texts, key=lambda name: len(texts[name]), default="text")


def _beginning(path: Path) -> str:
    beginning = b""
    with suppress(BrokenArchiveError):
        for block in blocks(path):
            beginning += block
            if len(beginning) >= _BEGINNING_BYTES:
                break
    return beginning.decode("utf-8", errors="replace")
