"""Detects the format of a source's files and their text column, by a sample of some of them.

Only for drafting a profile; a run never guesses.
"""

import codecs
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tokmill.flows.profile.text_column import beginning, choose_columns
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span, content, size_of
from tokmill.tasks.formats.text.detection import contents_of
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.formats.text.sources import (
    WITH_COLUMNS,
    Format,
    ReadOptions,
    check_column,
    format_by_name,
    inner_suffix,
)
from tokmill.tasks.remote.location import Location

_END_OF_DOCUMENT = "<|endoftext|>"
_MOST_FILES = 8
_MOST_TRIED = 64
_MOST_ROWS = 4000
# Read of the beginning of a file; the second where no record ends in the first.
_BEGINNINGS = (4 << 20, 64 << 20)
_BINARY = ("parquet", "arrow")
_EXPECTED = {
    "csv": "rows must have as many fields as the first: give --delimiter or --quoting as the file has them, ",
    "json": 'a record is an object, {"text": "…"}; ',
    "jsonl": 'a record is an object, {"text": "…"}, on a line; ',
}
# Numbers of any length, whose values are of no concern.
_JSON = json.JSONDecoder(parse_int=float)
_BETWEEN = re.compile(r"[ \t\r\n,]*")

_AUTO = ReadOptions()
_Rows: TypeAlias = tuple[Sequence[str], Sequence[Mapping[str, object]]]
"""Names of columns, and rows."""


@dataclass(frozen=True)
class Seen:
    """What was detected in a source's files: keys of its table, the reason, and how two documents begin."""

    options: Mapping[str, Any]
    remark: str
    documents: tuple[str, ...] = ()


class _Sample(NamedTuple):
    """Some rows of a file, and how a CSV file is written."""

    path: Location
    names: Sequence[str] = ()
    rows: Sequence[Mapping[str, object]] = ()
    options: Mapping[str, Any] = {}


def sniff(
    paths: Sequence[Location],
    given: ReadOptions = _AUTO,
    *,
    source: str = "s",
    text_column: str | None = None,
) -> Seen:
    """Inspect some of a source's files; if formats differ, each file is read by its own.

    `given` has their encoding, and how CSV files are written, if that is known.
    """
    last = len(paths) - 1
    spread = [paths[at] for at in sorted({last * part // (_MOST_FILES - 1) for part in range(_MOST_FILES)})]
    some = [*spread, *(path for path in paths if path not in spread)][:_MOST_TRIED]
    encoding = ReadOptions(encoding=given.encoding)
    kinds = {path: contents_of(path, encoding, any_column=True).format for path in some}
    tables = {path: kind for path, kind in kinds.items() if kind in WITH_COLUMNS}
    if not tables:
        return _seen_text(spread, given.encoding)
    samples = _samples(tables, given)
    rows = [row for sample in samples for row in sample.rows]
    choice = choose_columns(rows, source, text_column, file=samples[0].path.name)
    _require_column(choice.text, samples)
    # by content where a file of the same suffix was read, else by suffix
    read = {inner_suffix(path.name) for path in kinds}
    unread = {format_by_name(path.name) for path in paths if inner_suffix(path.name) not in read}
    formats = sorted({*kinds.values()} | unread)
    options = {"format": formats[0] if len(formats) == 1 else "auto", "text_column": choice.text}
    # what differs between CSV files is found in each of them when it is read
    written = samples[0].options.items()
    options |= {key: value for key, value in written if all(one.options.get(key) == value for one in samples)}
    if choice.identifier and all(choice.identifier in sample.names for sample in samples):
        options["id_column"] = choice.identifier
    several = f"{' and '.join(formats)}; " if len(formats) > 1 else ""
    unnamed = "no header, so the columns are numbered; " if "columns" in options else ""
    return Seen(options, f"{several}{unnamed}{choice.reason}", choice.documents)


def _seen_text(paths: Sequence[Location], encoding: str) -> Seen:
    starts = [_beginning(path, encoding)[0] for path in paths]
    delimited = any(_END_OF_DOCUMENT in start for start in starts)
    texts = (one for start in starts for one in (start.split(_END_OF_DOCUMENT) if delimited else [start]))
    documents = tuple(map(beginning, islice(filter(str.strip, texts), 2)))
    if delimited:
        options = {"format": "delimited", "delimiter": _END_OF_DOCUMENT}
        return Seen(options, f"{_END_OF_DOCUMENT} between documents", documents)
    return Seen({"format": "text"}, "one document per file", documents)


def _require_column(column: str, samples: Sequence[_Sample]) -> None:
    for sample in samples:
        if sample.names.count(column) > 1:
            check_column(sample.path.name, column, list(sample.names), "text_column")
    having = [sample.path for sample in samples if column in sample.names]
    if lacking := [sample for sample in samples if column not in sample.names]:
        first, *others = lacking
        # a path from the working directory, as a pattern that matches no other file
        names = [
            f"{os.curdir}/{os.path.relpath(path)}" if isinstance(path, Path) else str(path)
            for path, *_ in lacking
        ]
        more = f" and {len(others)} others looked at have" if others else " has"
        raise SourceError(
            f"{first.path}{more} no column {column!r}, which {having[0]} has (the columns of the first: "
            f"{', '.join(first.names)}); leave out what has none with "
            f"{' '.join(f'--exclude {shlex.quote(name)}' for name in names)}, or make it a source of its own"
        )


def _samples(kinds: Mapping[Location, Format], given: ReadOptions) -> list[_Sample]:
    """Return samples of files that hold a record."""
    num_rows = _MOST_ROWS // min(len(kinds), _MOST_FILES)
    tried = (_sample(path, kind, given, num_rows) for path, kind in kinds.items())
    samples = list(islice((sample for sample in tried if sample.rows), _MOST_FILES))
    if not samples:
        path, kind = next(iter(kinds.items()))
        start = "" if kind in _BINARY else _beginning(path, given.encoding)[0]
        damaged = "is damaged or has no rows" if size_of(path) else "is empty"
        seen = f"begins with {start[:40]!r}" if start else damaged
        raise SourceError(
            f"no record of format {kind} at the beginning of {path}, which {seen}; "
            f"{_EXPECTED.get(kind, '')}repair or exclude it"
        )
    return samples


def _sample(path: Location, kind: Format, given: ReadOptions, num_rows: int) -> _Sample:
    from tokmill.tasks.formats.text.columnar import sampled  # noqa: PLC0415 - pyarrow
    from tokmill.tasks.formats.text.csv import sketch  # noqa: PLC0415

    try:
        if kind in _BINARY:
            return _Sample(path, *sampled(path, kind, num_rows))
        if kind == "csv":
            _beginning(path, given.encoding, 1)  # refuses another encoding
            drafted = sketch(path, given, num_rows)
            return _Sample(path, drafted.names, drafted.rows, drafted.options)
    except BrokenFileError:
        return _Sample(path)
    for most in _BEGINNINGS:
        start, is_whole = _beginning(path, given.encoding, most)
        names, rows = _json_rows(start, is_whole, is_array=kind == "json")
        if rows or is_whole:
            break
    return _Sample(path, names, rows[:num_rows])


def _json_rows(start: str, is_whole: bool, *, is_array: bool) -> _Rows:
    """Return the objects in an array of JSON, or on lines."""
    lines = start.split("\n")
    on_lines = map(_json_value, lines if is_whole else lines[:-1])
    values = _json_values(start.lstrip().removeprefix("[")) if is_array else on_lines
    rows = [value for value in islice(values, _MOST_ROWS) if isinstance(value, dict)]
    return list(dict.fromkeys(name for row in rows for name in row)), rows


def _json_value(line: str) -> object:
    try:
        return _JSON.decode(line)
    except (ValueError, RecursionError):
        return None


def _json_values(text: str) -> Iterator[object]:
    """Yield the JSON values at the beginning of a text, between white space and commas."""
    at = 0
    with suppress(ValueError, RecursionError):
        while following := _BETWEEN.match(text, at):
            value, at = _JSON.raw_decode(text, following.end())
            yield value


def _beginning(path: Location, encoding: str, most: int = _BEGINNINGS[0]) -> tuple[str, bool]:
    """Return the first characters of a file, and whether they are all."""
    data, is_whole = bytearray(), True
    with suppress(BrokenFileError):
        for block, _ in content(path, Span(), encoding):
            data += block
            if len(data) >= most:
                is_whole = False
                break
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data), is_whole
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} is not {encoding.upper()} (byte 0x{data[error.start]:02x} at {error.start}); give its "
            "encoding, e.g. --encoding cp1252 or shift_jis, or exclude it"
        ) from error
