"""How a CSV file is written: its delimiter, its quoting, its line ends, and the row that names its columns.

What the options do not say is found in the file's first block: the delimiter by which the header has the
requested columns; the quoting that quotes and backslashes show, where files with tabs and bars are often
without. What may mean either is an error, which names the setting. docs/formats.md has the rules.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn, TypeAlias

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span, content
from tokmill.tasks.formats.text.sources import Quoting, ReadOptions, inner_suffix
from tokmill.tasks.remote.location import Location

# A row; None is a null.
Row: TypeAlias = list[str | None]

_DELIMITERS = (",", ";", "\t", "|")
_OFTEN_WITHOUT_QUOTES = ("\t", "|")
_QUOTINGS: tuple[Quoting, ...] = ("double", "backslash", "none")
_SEP = re.compile(rb'"?sep=([^\r\n"])"?(?:\r\n|\r|\n)', re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(["\\])|\\')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\r?\n\Z")
# Surrogates that decoding never gives stand for delimiters, line ends and quotes that are text, and for null.
_DELIMITER, _NULL, _RETURN, _NEWLINE, _QUOTE = map(chr, range(0xD800, 0xD805))
_MEANT = re.compile(r'(?:^|[\t|])"|\\[\\ntrbfv0N]')
# A number, a date or an address.
_NUMBER = re.compile(r"\s*[-+]?\d|\S+://", re.DOTALL)
_OFTEN = 20  # a value that recurs is in one row of so many
# Nothing, a number or a date, an address, a sentence, or many words or characters.
_LIKE_DATA = re.compile(r"\s*$|[-+]?\d|.*://|.*[.!?]$|(?:\S+\s+){4}\S|.{51}", re.DOTALL)


class Dialect(NamedTuple):
    """How a CSV file is written."""

    delimiter: str  # the character between fields
    quoting: Quoting  # as in the options, but never "auto"
    line_end: bytes = b"\n"  # or b"\r"
    start: int = 0  # position in the file's content of the first row
    is_certain: bool = True  # whether the start of the file shows the quoting; else it has no quotes there


class Start(NamedTuple):
    """The start of a file: its whole lines, with ends, after a line `sep=`, and what that line names."""

    lines: list[str]
    line_end: bytes
    position: int
    delimiter: str


def default_delimiter(name: str) -> str:
    """Return the delimiter that belongs to a file's suffix."""
    return "\t" if inner_suffix(name) == ".tsv" else ","


def start_of(path: Location, span: Span, encoding: str) -> Start:
    """Return the first lines of a file."""
    block, position = next(content(path, span, encoding), (b"", 0))
    sep = _SEP.match(block)
    if sep is not None:
        block, position = block[sep.end() :], position + sep.end()
    first = re.search(rb"\r\n|\r|\n", block)
    line_end = b"\r" if first is not None and first[0] == b"\r" and first.end() < len(block) else b"\n"
    *whole, rest = block.decode("utf-8", "surrogateescape").split(line_end.decode())
    lines = [line + line_end.decode() for line in whole] or [rest]
    return Start(lines, line_end, position, sep[1].decode("latin-1") if sep else "")


def dialect_of(name: str, start: Start, options: ReadOptions) -> Dialect:
    """Return how a file with the columns of the options is written."""
    delimiter, default = options.delimiter or start.delimiter, default_delimiter(name)
    if not delimiter:
        known = (one for one in (default, *_DELIMITERS) if _has_columns(start.lines, one, options))
        delimiter = next(known, None) or next(iter(_regular(start.lines)), default)
    return _with_quoting(name, start, options, delimiter)


def drafted(name: str, start: Start, options: ReadOptions) -> tuple[Dialect, bool]:
    """Return the dialect of a file whose columns are unknown, and whether its first row is a header."""
    default, known = default_delimiter(name), options.delimiter or start.delimiter
    in_header = [one for one in (default, *_DELIMITERS) if one in start.lines[0]]
    found = [known] if known else _regular(start.lines) or in_header
    if len(found) > 1 and default not in found:
        raise SourceError(
            f"{name}: its beginning does not show which of {' '.join(map(repr, found))} separates "
            "fields; set delimiter"
        )
    dialect = _with_quoting(name, start, options, default if default in found or not found else found[0])
    rows, _ = _sample(start.lines, dialect.delimiter, dialect.quoting)
    return dialect, not rows or _is_header(rows)


def _with_quoting(name: str, start: Start, options: ReadOptions, delimiter: str) -> Dialect:
    quoting = options.quoting if options.quoting != "auto" else _quoting(name, start.lines, delimiter)
    return Dialect(delimiter, quoting or "double", start.line_end, start.position, quoting is not None)


def rows_of(lines: Iterable[str], dialect: Dialect) -> Iterator[Row]:
    """Yield the rows of lines with their ends; an empty line is an empty row."""
    # A text may be longer than the parser's default limit of 128 KiB per field.
    csv.field_size_limit(min(sys.maxsize, (1 << 31) - 1))
    return _ROWS[dialect.quoting](lines, dialect.delimiter)


def _doubled(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    yield from csv.reader(lines, delimiter=delimiter, strict=True)


def _backslashed(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    r"""Only `\"` and `\\` are escapes, as Spark and DuckDB write them; a quote that is text has one."""

    def marked(found: re.Match[str]) -> str:
        return _QUOTE if found[1] == '"' else "\\"

    known = (_BACKSLASH.sub(marked, line) if "\\" in line else line for line in lines)
    for row in csv.reader(known, delimiter=delimiter, strict=True):
        if any('"' in field for field in row):
            raise csv.Error
        yield [field.replace(_QUOTE, '"') for field in row]


def _plain(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    for line in lines:
        inside = _without_end(line)
        yield [*inside.split(delimiter)] if inside else []


def _escaped(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    r"""As PostgreSQL and MySQL write text: `\t`, a backslash before a line end, `\N` for null, `\.` last."""

    def meaning(found: re.Match[str]) -> str:
        meant = _NULL if found[1] == "N" else _ESCAPES.get(found[1], found[1])
        return _DELIMITER if meant == delimiter else meant

    held = ""
    for line in lines:
        held += line
        if _CONTINUED.search(held):
            continue
        inside, held = _without_end(held), ""
        if inside in ("", "\\."):
            yield []
        elif "\\" not in inside:
            yield [*inside.split(delimiter)]
        else:
            yield [
                None if field == _NULL else field.replace(_DELIMITER, delimiter).replace(_NULL, "N")
                for field in _ESCAPE.sub(meaning, inside).split(delimiter)
            ]
    if held:
        yield [_without_end(held)]


def _without_end(line: str) -> str:
    return line.removesuffix("\r\n") if line.endswith("\r\n") else line.removesuffix("\n").removesuffix("\r")


_ROWS: dict[str, Callable[[Iterable[str], str], Iterator[Row]]] = {
    "double": _doubled,
    "backslash": _backslashed,
    "none": _plain,
    "escapes": _escaped,
}


def protected(line: str) -> str:
    r"""Replace each `\r` and `\n` within a line, which the parser would take for its end."""
    inside = _without_end(line)
    return inside.replace("\r", _RETURN).replace("\n", _NEWLINE) + line[len(inside) :]


def restored(row: Row) -> Row:
    r"""Put each `\r` and `\n` back."""
    return [field and field.replace(_RETURN, "\r").replace(_NEWLINE, "\n") for field in row]


def proper_row(dialect: Dialect, number: int) -> Callable[[str], object]:
    """Return a test of whether the lines of a row have `number` fields, and quotes only where they belong."""
    quoted = r'"(?:[^"\\]|\\.)*"' if dialect.quoting == "backslash" else '"(?:[^"]|"")*"'
    delimiter = re.escape(dialect.delimiter)
    field = f'(?:{quoted}|[^"{delimiter}]*)'
    return re.compile(f"{field}(?:{delimiter}{field}){{{number - 1}}}[\r\n]*", re.DOTALL).fullmatch


def is_ambiguous(line: str) -> bool:
    """Whether the quoting decides what the fields of a line are."""
    return ('"' in line or "\\" in line) and _MEANT.search(line) is not None


def _sample(lines: Sequence[str], delimiter: str, quoting: Quoting) -> tuple[list[Row], bool]:
    """Return the rows of lines, and whether all have one length; the last one may go on after the lines."""
    waiting = iter([*lines, "\n"])  # which only a field that goes on takes, if there is an error
    rows: list[Row] = []
    is_sound = True
    try:
        rows.extend(rows_of(map(protected, waiting), Dialect(delimiter, quoting)))
    except csv.Error:
        is_sound = next(waiting, None) is None and len(rows) > 0
    rows = [restored(row) for row in rows if row]
    return rows, is_sound and len({len(row) for row in rows}) == 1


def _has_columns(lines: Sequence[str], delimiter: str, options: ReadOptions) -> bool:
    if options.columns:
        rows, is_regular = _sample(lines, delimiter, "double")
        return is_regular and len(rows[0]) == len(options.columns)
    names: Row = []
    with suppress(csv.Error):
        names = next(filter(None, rows_of(lines, Dialect(delimiter, "double"))), [])
    return {options.text_column, options.id_column} - {None} <= {*names}


def _regular(lines: Sequence[str]) -> list[str]:
    """Return the delimiters that give all rows the same number of fields, at least two."""

    def is_regular(delimiter: str, quoting: Quoting) -> bool:
        rows, fits = _sample(lines, delimiter, quoting)
        return fits and len(rows[0]) > 1

    return [one for one in _DELIMITERS if any(is_regular(one, quoting) for quoting in _QUOTINGS)]


def _quoting(name: str, lines: Sequence[str], delimiter: str) -> Quoting | None:
    """Return the quoting; None without quotes and backslashes, if the delimiter leaves it open."""
    text, often_plain = "".join(lines), delimiter in _OFTEN_WITHOUT_QUOTES
    if often_plain and "\\" in text and _has_escapes(name, lines, delimiter):
        return "escapes"
    if '"' not in text:
        return "double" if not often_plain else "none" if "\\" in text else None
    excluded = {"backslash"} if '\\"' not in text else set()
    possible = [one for one in _QUOTINGS if one not in excluded and (often_plain or one != "none")]
    if len(possible) == 1:
        return "double"
    samples = {one: _sample(lines, delimiter, one) for one in possible}
    fitting = {one: rows for one, (rows, fits) in samples.items() if fits}
    first, *others = fitting.values() or [[]]
    if all(rows == first for rows in others) and fitting:
        return next(iter(fitting))
    if not (fitting or often_plain):
        return "double"
    are_lines = [*fitting] == ["double", "none"] and len(first) == len(fitting["none"])
    chosen = _by_fields(fitting["none"]) if often_plain and are_lines else None
    return chosen or _refuse(name, '"', [*fitting] or possible)


def _has_escapes(name: str, lines: Sequence[str], delimiter: str) -> bool:
    """Whether backslashes are escapes, and not text."""
    others = [line for line in lines if _without_end(line) != "\\."]
    escaped = {found[1] for line in others for found in _ESCAPE.finditer(line)}
    is_known = escaped <= {*_ESCAPES, "\\", "N", "\n", "\r", delimiter}
    if not is_known or not _sample(others, delimiter, "escapes")[1]:
        return False
    has_null = any("\\N" in _without_end(line).split(delimiter) for line in others)
    if has_null or not (_sample(others, delimiter, "none")[1] or _sample(others, delimiter, "double")[1]):
        return True
    return _refuse(name, "\\", ["escapes"])


def _by_fields(rows: Sequence[Row]) -> Quoting | None:
    """Return the quoting that quotes in fields show, if each line is a row in any case; else None."""
    columns = [[field for field in column if field] for column in zip(*rows[1:], strict=True)]
    fields = [field for row in rows for field in row if field and '"' in field]
    needs_quotes = any(field.startswith('"') and '""' in field[1:-1] for field in fields)
    if any(not field.startswith('"') for field in fields):
        return None if needs_quotes else "none"
    is_quoted = len(rows) > 2 and any(
        column and all(field.startswith('"') for field in column) for column in columns
    )
    return "double" if is_quoted or needs_quotes else None


def _refuse(name: str, character: str, possible: Sequence[str]) -> NoReturn:
    known = " or ".join(repr(one) for one in possible if one != "none")
    raise SourceError(
        f"{name}: its beginning does not show whether {character} belongs to the text; set quoting = 'none' "
        f"if it does, else quoting = {known}"
    )


def _is_header(rows: Sequence[Row]) -> bool:
    """Whether the first row looks like names.

    It does not if one of its fields recurs in its column often, as labels do, or is a number or an address
    like those below it. It does if one stands above numbers, or a single word above texts of several. Else
    names are short and different; the first may be empty, as pandas writes it for an index.
    """
    columns = [[field or "" for field in column] for column in zip(*rows, strict=False)]
    filled = [(name, below) for name, *rest in columns if (below := [*filter(None, rest)]) or name]
    if any(_is_value(name, below) for name, below in filled if name and below):
        return False
    if any(_stands_above(name, below) for name, below in filled if name and below):
        return True
    names = [name for name, _ in filled]
    if names[:1] == [""]:
        del names[0]
    return len({*names}) == len(names) and not any(map(_LIKE_DATA.match, names))


def _is_value(name: str, below: Sequence[str]) -> bool:
    is_alike = _NUMBER.match(name) and 2 * sum(map(bool, map(_NUMBER.match, below))) > len(below)
    return bool(is_alike) or below.count(name) * _OFTEN >= len(below)


def _stands_above(name: str, below: Sequence[str]) -> bool:
    is_word = len(name.split()) == 1 and len(below) > 1
    is_above = all(map(_NUMBER.match, below)) or (is_word and all(len(field.split()) > 1 for field in below))
    return is_above and not _NUMBER.match(name)
