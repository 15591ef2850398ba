"""Chooses the column that holds a source's documents, by the values of some thousand rows.

A column with a usual name (`text`, `Content`, …) comes first, then that with the most running text: values of
several words, of which few have marks as those of ids, URLs and dates do. Neither repeats a few values again
and again. Where several may be the text, or most text is in lists and objects, an error names them.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from tokmill.tasks.core.errors import SourceError

_TEXT_NAMES = ("text", "content", "body", "document", "raw_content", "raw_text", "full_text", "page_content")
# Questions and answers and the like: none of them is a document without the others.
_PARTS = frozenset(
    [
        *("prompt", "instruction", "input", "question", "query", "chosen", "rejected"),
        *("response", "output", "answer", "completion", "target"),
    ]
)
_ID_NAMES = ("id", "doc_id", "document_id", "uuid", "url")
# In words of ids, URLs, hashes, dates, paths, addresses and numbers, but seldom in those of a text.
_MARK = re.compile(r"[\d\\@]|(?<!<)/")
_DATA = re.compile(r"\s*(\{\s*[\"'].*\}|\[\s*[\[{\"'].*\])\s*", re.DOTALL)
_WITHOUT_SPACES = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_LOOKED_AT_CHARS = 300
_FEW_WORDS = 3
_FEW_ROWS = 20
_EXCERPT_CHARS = 80
_DEPTH = 8
_SHOWN = 12
_MANY_REPEAT = 1 / 5
# A column comes into question with this part of the most text of any, and if fewer of its values repeat.
_CLOSE = 1 / 5
_LEAST_DISTINCT = 1 / 10
_LEAST_PRESENT = 1 / 20
# Single words count for this much of running text.
_OF_WORDS = 1 / 10


@dataclass
class _Column:
    """The values of one column: its texts that are not blank, and its lists and objects."""

    name: str
    num_rows: int
    texts: list[str] = field(default_factory=list)
    nested: list[object] = field(default_factory=list)

    @cached_property
    def chars(self) -> float:
        """Characters of text per row, by the median; none where the column holds something else."""
        if not (self.is_text and self.is_varied):
            return 0
        return median(map(_weight, self.texts)) * len(self.texts) / self.num_rows

    @property
    def length(self) -> int:
        """The median of the texts' characters."""
        return round(median(map(len, self.texts)))

    @cached_property
    def nested_chars(self) -> float:
        """Characters of running text per row inside lists and objects, by the median."""
        each = [sum(len(text) for text in _strings(value) if _is_running(text)) for value in self.nested]
        return median(each) * len(each) / self.num_rows if each else 0

    @cached_property
    def is_text(self) -> bool:
        num_ids = sum(map(_is_id_like, self.texts))
        return bool(self.texts) and 2 * max(num_ids, len(self.nested)) < len(self.texts)

    @property
    def has_words(self) -> bool:
        """Whether most of its values are texts of more than one word, be these numbers."""
        num_words = sum(len(text[:_LOOKED_AT_CHARS].split(None, 1)) > 1 for text in self.texts)
        return 2 * num_words > len(self.texts) + len(self.nested)

    @property
    def is_varied(self) -> bool:
        return len(self.texts) < _FEW_ROWS or self.distinct >= _LEAST_DISTINCT

    @cached_property
    def distinct(self) -> float:
        return len(set(self.texts)) / max(1, len(self.texts))

    @property
    def kind(self) -> str:
        """What it has instead of texts."""
        if not self.nested:
            if not self.texts:
                return "no text"
            return "ids, numbers, dates or paths" if not self.is_text else "a few texts again and again"
        value = self.nested[0]
        if isinstance(value, bytes):
            return "bytes that are not UTF-8"
        objects = [one for one in _items(value) if isinstance(one, Mapping)]
        is_chat = any(key in one for one in objects for key in ("role", "from"))
        words = "chats" if is_chat else "lists of objects" if objects else "lists"
        return "objects" if isinstance(value, Mapping) else words


@dataclass(frozen=True)
class Choice:
    """The column of the documents, that of their ids or None, the reason, and how two documents begin."""

    text: str
    identifier: str | None
    reason: str
    documents: tuple[str, ...]


def choose_columns(
    rows: Sequence[Mapping[str, object]], source: str, wanted: str | None = None, *, file: str = "the source"
) -> Choice:
    """Choose the columns of a source by some of its rows; the text is `wanted` if that is given."""
    columns = _columns(rows)
    try:
        column, why = _chosen(columns, source, wanted)
    except SourceError as error:
        raise SourceError(f"{file}: {error}") from error
    ids = {name.lower(): name for name in columns if name != column.name and not columns[name].nested}
    repeated = 1 - column.distinct
    remarks = [f"columns {_list(columns)}", f"{column.name} {why}"]
    if len(column.texts) >= _FEW_ROWS and repeated > _MANY_REPEAT:
        remarks.append(f"{repeated:.0%} of its texts repeat")
    remarks += [
        f"{other.name} has {other.kind} and is left out"
        for other in columns.values()
        if other.nested and (other.nested_chars or other.kind == "chats")
    ]
    return Choice(
        text=column.name,
        identifier=next((ids[known] for known in _ID_NAMES if known in ids), None),
        reason=_on_one_line("; ".join(remarks)),
        documents=tuple(map(beginning, (column.texts[0], column.texts[-1])[: len(column.texts)])),
    )


def beginning(text: str) -> str:
    """Return the first characters of a document on one line."""
    line = " ".join(text[: 8 * _EXCERPT_CHARS].split()).encode("utf-8", "replace").decode("utf-8")
    return line if len(line) <= _EXCERPT_CHARS else f"{line[: _EXCERPT_CHARS - 1]}…"


def _on_one_line(text: str) -> str:
    """Escape control characters: the name of a column may have any."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for row in rows:
        for name, value in row.items():
            if not name or name != name.encode("utf-8", "ignore").decode():  # a profile cannot name it
                continue
            column = columns.setdefault(name, _Column(name, len(rows)))
            if isinstance(value, str):
                column.texts += [value] if value.strip() else []
            elif isinstance(value, list | tuple | dict | bytes) and value:
                column.nested.append(value)
    return columns


def _chosen(columns: Mapping[str, _Column], source: str, wanted: str | None) -> tuple[_Column, str]:
    """Return the column with the text, and why: the one that is wanted, or by its name, or by its texts."""
    if not columns:
        raise SourceError("no row has a column that a profile can name")
    if wanted is not None:
        if wanted not in columns:
            raise SourceError(f"no row has a column {wanted!r}; there are {_list(columns)}")
        if not columns[wanted].texts:
            raise SourceError(f"column {wanted!r} has {columns[wanted].kind}, and must have texts")
        return columns[wanted], "as asked"
    usual = [
        column
        for known in _TEXT_NAMES
        for name, column in sorted(columns.items(), key=lambda item: item[0] != known)
        if name.lower() == known and not 0 < len(column.texts) < _LEAST_PRESENT * column.num_rows
    ]
    if texts := [each for each in usual if each.is_varied and (each.is_text or each.has_words)]:
        return texts[0], "by its name"
    if nested := [column for column in usual if column.nested]:
        raise _no_text(columns, source, nested)
    return _by_text(columns, source)


def _by_text(columns: Mapping[str, _Column], source: str) -> tuple[_Column, str]:
    best, *others = ranked = sorted(columns.values(), key=lambda column: -column.chars)
    nested = [column for column in ranked if column.nested_chars]
    if not best.chars or any(2 * column.nested_chars > best.chars for column in nested):
        raise _no_text(columns, source, nested)
    parts = [column for column in ranked if column.name.lower().rstrip("s") in _PARTS and column.chars]
    close = [
        column
        for column in ranked
        if column.chars >= _CLOSE * best.chars or (best in parts and column in parts)
    ]
    if len(close) > 1:
        seen = "; ".join(
            f"{column.name!r} ({column.length:,} characters, as {beginning(column.texts[0])[:50]!r})"
            for column in close
        )
        raise SourceError(
            f"several columns may be the text: {seen}; choose one with {_option(source, best)}, or write a "
            "column that joins them"
        )
    if others and others[0].chars:
        after = f"; next is {others[0].name} with {others[0].length:,}"
        return best, f"has the longest texts, {best.length:,} characters{after}"
    rest = "; others have ids, dates or the like, or repeat" if any(one.texts for one in others) else ""
    return best, f"is the only one with text{rest}"


def _no_text(columns: Mapping[str, _Column], source: str, nested: Sequence[_Column]) -> SourceError:
    held = ", ".join(f"{column.name!r} has {column.kind}" for column in nested or columns.values())
    other = max(columns.values(), key=lambda column: (column.chars, len(column.texts)))
    choice = f", or choose a column with {_option(source, other)}" if other.texts else ""
    return SourceError(
        f"no column has the text: {held}, and a document is one text; write the text to a column "
        f"first{choice} (columns: {_list(columns)})"
    )


def _option(source: str, column: _Column) -> str:
    return f"--text-column {shlex.quote(f'{source}={column.name}')}"


def _list(columns: Mapping[str, _Column]) -> str:
    names = [_on_one_line(name) for name in columns]
    return ", ".join(names if len(names) <= _SHOWN else [*names[:_SHOWN], f"… ({len(names)} in all)"])


def _weight(text: str) -> float:
    if _is_running(text):
        return len(text)
    return 0 if _is_id_like(text) else len(text) * _OF_WORDS


def _is_running(text: str) -> bool:
    """Whether a text has several words, or as many letters of a script without spaces, and is not data."""
    start = text[:_LOOKED_AT_CHARS]
    if len(start.split(None, _FEW_WORDS)) < _FEW_WORDS and not _has_letters_without_spaces(start):
        return False
    return not (_is_id_like(text) or _DATA.fullmatch(text))


def _is_id_like(text: str) -> bool:
    """Whether half of the first words have a mark, in a script with spaces between words."""
    words = text[:_LOOKED_AT_CHARS].split()
    num_marked = sum(_MARK.search(word) is not None for word in words)
    return 2 * num_marked >= len(words) and not _has_letters_without_spaces(text[:_LOOKED_AT_CHARS])


def _has_letters_without_spaces(start: str) -> bool:
    return len(_WITHOUT_SPACES.findall(start)) >= 3 * _FEW_WORDS


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts inside lists and objects."""
    if isinstance(value, str):
        yield value
    for one in _items(value) if depth < _DEPTH else ():
        yield from _strings(one, depth + 1)


def _items(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list | tuple) else ()
