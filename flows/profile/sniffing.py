"""Detects the format of a source's files and their text column, by a sample of some of them.

Only for drafting a profile; a run never guesses.
"""

import codecs
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Names of columns, and rows.
_Rows: TypeAlias = tuple[Sequence[str], Sequence[Mapping[str, object]]]


@dataclass(frozen=True)
class Seen:
    """What was detected in a source's files.

    Attributes:
        options: keys and values for the source's table in the draft.
        remark: the reason for the choice, in a few words.
        documents: the beginnings of two documents.
    """

    options: Mapping[str, Any]
    remark: str
    documents: tuple[str, ...] = ()


class _Sample(NamedTuple):
    """Some rows of a file, and how a CSV file is written."""

    path: Location
    names: Sequence[str]
    rows: Sequence[Mapping[str, object]]
    options: Mapping[str, Any] = {}


def sniff(
    paths: Sequence[Location],
    given: ReadOptions = _AUTO,
    *,
    source: str = "s",
    text_column: str | None = None,
) -> Seen:
    """Inspect some of a source's files; if formats differ, each file is read by its own.

    Args:
        paths: the files.
        given: their encoding, and the delimiter and quoting of CSV files if they are known.
        source: the source's name, for errors.
        text_column: the column of the documents, if the user names it.

    Raises:
        SourceError: a file holds what tokmill does not read, cannot be read or lacks a column, no column has
            text, or several may be the documents'.
    """
    kinds = {path: _format_of(path, given.encoding) for path in _looked_at(paths)}
    tables = {path: kind for path, kind in kinds.items() if kind in WITH_COLUMNS}
    if not tables:
        return _seen_text(paths, given.encoding)
    samples = _samples(tables, given)
    rows = [row for sample in samples for row in sample.rows]
    choice = choose_columns(rows, source, text_column, file=samples[0].path.name)
    _require_column(choice.text, samples)
    formats = _formats(paths, kinds)
    options = {"format": formats[0] if len(formats) == 1 else "auto", "text_column": choice.text}
    options |= _common(samples)
    if choice.identifier and all(choice.identifier in sample.names for sample in samples):
        options["id_column"] = choice.identifier
    several = f"{' and '.join(formats)}; " if len(formats) > 1 else ""
    unnamed = "no header, so the columns are numbered; " if "columns" in options else ""
    return Seen(options, f"{several}{unnamed}{choice.reason}", choice.documents)


def _common(samples: Sequence[_Sample]) -> dict[str, Any]:
    """Return how all files are written; what differs is found in each of them when it is read."""
    first = samples[0].options
    return {
        key: value for key, value in first.items() if all(one.options.get(key) == value for one in samples)
    }


def _format_of(path: Location, encoding: str) -> Format:
    return contents_of(path, ReadOptions(encoding=encoding), any_column=True).format


def _formats(paths: Sequence[Location], kinds: Mapping[Location, Format]) -> list[str]:
    """Return the formats of the files: by content where one of the same suffix was read, else by suffix."""
    known = {inner_suffix(path.name) for path in kinds}
    others = {format_by_name(path.name) for path in paths if inner_suffix(path.name) not in known}
    return sorted({*kinds.values()} | others)


def _seen_text(paths: Sequence[Location], encoding: str) -> Seen:
    starts = {path: start for path in _spread(paths) if (start := _beginning(path, encoding)[0])}
    if any(_END_OF_DOCUMENT in start for start in starts.values()):
        options = {"format": "delimited", "delimiter": _END_OF_DOCUMENT}
        documents = (one for start in starts.values() for one in start.split(_END_OF_DOCUMENT))
        return Seen(options, f"{_END_OF_DOCUMENT} between documents", _two(documents))
    return Seen({"format": "text"}, "one document per file", _two(starts.values()))


def _two(documents: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(beginning, islice(filter(str.strip, documents), 2)))


def _require_column(column: str, samples: Sequence[_Sample]) -> None:
    for sample in samples:
        if sample.names.count(column) > 1:
            check_column(sample.path.name, column, list(sample.names), "text_column")
    having = [sample.path for sample in samples if column in sample.names]
    if lacking := [sample for sample in samples if column not in sample.names]:
        first = lacking[0]
        more = f" and {len(lacking) - 1} others looked at have" if lacking[1:] else " has"
        leave_out = " ".join(f"--exclude {shlex.quote(_relative(sample.path))}" for sample in lacking)
        raise SourceError(
            f"{first.path}{more} no column {column!r}, which {having[0]} has (the columns of the first: "
            f"{', '.join(first.names)}); leave out what has none with {leave_out}, or make it a source of "
            "its own"
        )


def _relative(path: Location) -> str:
    """Return a path from the working directory, as a pattern that matches no other file."""
    return f"{os.curdir}/{os.path.relpath(path)}" if isinstance(path, Path) else str(path)


def _spread(paths: Sequence[Location]) -> list[Location]:
    """Return the first file, the last, and some between them."""
    last = len(paths) - 1
    return [
        paths[index] for index in sorted({last * part // (_MOST_FILES - 1) for part in range(_MOST_FILES)})
    ]


def _looked_at(paths: Sequence[Location]) -> list[Location]:
    """Return some files, those that are spread over all of them first."""
    spread = _spread(paths)
    return [*spread, *(path for path in paths if path not in spread)][:_MOST_TRIED]


def _samples(kinds: Mapping[Location, Format], given: ReadOptions) -> list[_Sample]:
    """Return samples of files that hold a record."""
    num_rows = _MOST_ROWS // min(len(kinds), _MOST_FILES)
    found = (_sample(path, kind, given, num_rows) for path, kind in kinds.items())
    samples = list(islice((sample for sample in found if sample.rows), _MOST_FILES))
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
    if kind in _BINARY:
        return _of_table(path, kind, num_rows)
    if kind == "csv":
        return _of_csv(path, given, num_rows)
    for most in _BEGINNINGS:
        start, is_whole = _beginning(path, given.encoding, most)
        names, rows = _json_array(start) if kind == "json" else _json_lines(start, is_whole)
        if rows or is_whole:
            break
    return _Sample(path, names, rows[:num_rows])


def _of_csv(path: Location, given: ReadOptions, num_rows: int) -> _Sample:
    from tokmill.tasks.formats.text.csv import sketch  # noqa: PLC0415 - pyarrow

    try:
        _beginning(path, given.encoding, 1)  # refuses another encoding
        found = sketch(path, given, num_rows)
    except BrokenFileError:
        return _Sample(path, (), ())
    return _Sample(path, found.names, found.rows, found.options)


def _of_table(path: Location, kind: str, num_rows: int) -> _Sample:
    from tokmill.tasks.formats.text.columnar import sampled  # noqa: PLC0415 - pyarrow

    try:
        return _Sample(path, *sampled(path, kind, num_rows))
    except BrokenFileError:
        return _Sample(path, (), ())


def _json_lines(start: str, is_whole: bool) -> _Rows:
    lines = start.split("\n")
    return _objects(map(_json_value, lines if is_whole else lines[:-1]))


def _json_array(start: str) -> _Rows:
    return _objects(_json_values(start.lstrip().removeprefix("[")))


def _objects(values: Iterable[object]) -> _Rows:
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
    """Return the first characters of a file, and whether they are all.

    Raises:
        SourceError: they are not UTF-8.
    """
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
