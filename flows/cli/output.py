"""Prints results to standard output, and everything else to standard error.

A result is text for people or JSON for scripts. A table is cut to the width of a terminal; to a file or a
pipe it is written in full.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic_core import to_jsonable_python
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from tokmill.flows.errors import UsageError
from tokmill.flows.figures import shown

if TYPE_CHECKING:
    from tokmill.flows.run.events import Event, RunState
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Store

Part: TypeAlias = str | RenderableType | Mapping[str, str | Text]
"""A line, anything that rich can draw, or names with their values."""
_UNBOUNDED_COLUMNS = 10_000
_BETWEEN = " · "
_GAP = " " * 3
_LEAST_COLUMNS, _LEAST_WRAPPED = 8, 20  # of a column of text, in a terminal that is too narrow
_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # the direction of what follows


def results() -> Console:
    """Return the console for results."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED_COLUMNS
    return Console(highlight=False, width=wide)


def messages() -> Console:
    """Return the console for progress and notes."""
    return Console(stderr=True, highlight=False)


def print_parts(parts: Iterable[Part]) -> None:
    """Write the parts of a result for people; without trailing blanks unless on a terminal."""
    console = results()
    for part in parts:
        if isinstance(part, str):
            (aside if isinstance(part, Aside) else say)(part)
        elif isinstance(part, Table) and not console.is_terminal and console.width == _UNBOUNDED_COLUMNS:
            sys.stdout.write(part.plain())
        else:
            drawn = pairs(part.items()) if isinstance(part, Mapping) else part
            if console.is_terminal:
                console.print(drawn)
                continue
            with console.capture() as captured:
                console.print(drawn)
            sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def sections(parts: Mapping[str, "Table | Mapping[str, str | Text]"]) -> Iterator[Part]:
    """Yield tables, and names with values, below their headings; what is empty is left out."""
    for heading, whole in parts.items():
        part = whole if isinstance(whole, Table) else {k: v for k, v in whole.items() if str(v).strip()}
        if part:
            yield Text(f"\n{heading}" if heading else "", style="bold")
            yield part


def warning(text: str) -> Text:
    """Return a warning as a part of a result."""
    return Text(f"warning: {text}", style="yellow")


class Aside(str):
    """A remark on a result, which goes to standard error."""


def aside(text: str) -> None:
    """Write a remark on a result to standard error."""
    messages().print(Text(visible(text), style="dim"), soft_wrap=True)


def say(text: str) -> None:
    """Write one line of a result without wrapping or markup."""
    sys.stdout.write(f"{visible(text)}\n")


def visible(text: str) -> str:
    """Return a text with visible control characters, so that a name in a store cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(repr(char)[1:-1] if _steers(char) else char for char in text)


def _steers(char: str) -> bool:
    if unicodedata.category(char) == "Cc":
        return char not in "\n\t"
    return unicodedata.bidirectional(char) in _TURNING


def notes(event: "Event", state: "RunState") -> None:
    """Print a run's notes on standard error, but no progress."""
    if event.what == "noted":
        aside(event.text)


def require_new(command: str, path: Path | None, kind: str = "file") -> None:
    """Raise UsageError if a file or folder exists that a command would write."""
    if path is not None and path.exists():
        raise UsageError(f"{command}: {path} exists; name a new {kind}")


def shown_store(store: "Store") -> str:
    """Return the URL of a store, or its folder as `shown`."""
    return store.location if "://" in store.location else shown(store.root)


def called(store: "Store", ref: "ArtifactRef") -> str:
    """Return an artifact's reference under its own name: `kind/name@v1`."""
    return f"{ref.kind}/{ref.name}@{store.label(ref, ref.name)}"


def shown_address(store: "Store", ref: "ArtifactRef", path: str = "") -> str:
    """Return the URL of an artifact in a bucket or of a file of it, or its path as `shown`."""
    address = store.address(ref, path)
    return address if "://" in store.location else shown(Path(address))


def print_json(value: object) -> None:
    """Write one JSON document of models, mappings, sequences and plain values."""
    plain = to_jsonable_python(
        value, fallback=lambda odd: dict(odd) if isinstance(odd, Mapping) else str(odd)
    )
    sys.stdout.write(json.dumps(plain, ensure_ascii=False, indent=2) + "\n")


class Table:
    """A table with one line per row; in a terminal without room for all columns, names and values instead.

    Args:
        columns: the headings.
        rows: the cells; a number is written with thousands, None as nothing.
        right: columns that hold numbers; they are never cut.
        wrap: whether the last column is wrapped, not cut, if the terminal is too narrow.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str | Text | int | None]],
        right: Sequence[str] = (),
        *,
        wrap: bool = False,
    ) -> None:
        self._head = [_cell(column) for column in columns]
        for head in self._head:
            head.style = "bold"
        self._rows = [[_cell(cell) for cell in row] for row in rows]
        self._right = [column in right for column in columns]
        self._wrap, self._least = wrap, _LEAST_WRAPPED if wrap else _LEAST_COLUMNS
        self._widths = [
            max(cell.cell_len for cell in column) for column in zip(self._head, *self._rows, strict=True)
        ]
        self.width = sum(self._widths) + len(_GAP) * (len(columns) - 1)
        """How many columns of a terminal it takes if no cell is cut."""

    def __len__(self) -> int:
        return len(self._rows)

    def plain(self) -> str:
        """Return it as text of any width; rich takes 0.4 ms for each line."""
        lines = [
            _GAP.join(map(_padded, line, self._widths, self._right)).rstrip()
            for line in (self._head, *self._rows)
        ]
        lines.insert(1, "─" * self.width)
        return "".join(f"{line}\n" for line in lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        *widths, last = self._fitted(options.max_width)
        if last < min(self._widths[-1], self._least):
            for row in self._rows:
                yield from (Text(),) * (row is not self._rows[0])
                yield pairs(zip((head.plain for head in self._head), row, strict=True))
            return
        for number, (*cells, end) in enumerate((self._head, *self._rows)):
            if number == 1:
                yield Text("─" * min(self.width, options.max_width))
            parts = end.wrap(console, last, overflow="fold") if self._wrap else [_cut(end, last)]
            for place, part in enumerate(parts):
                line = ([Text()] * len(cells) if place else cells) + [part]
                yield Text(_GAP).join(map(_aligned, line, (*widths, last), self._right))

    def _fitted(self, room: int) -> list[int]:
        """Return the widths of the columns; the widest of text give way to the least width of the last."""
        *widths, last = self._widths
        room -= len(_GAP) * len(widths)
        text = [index for index, is_number in enumerate(self._right[:-1]) if not is_number]
        least = min(last, self._least)
        while sum(widths) + least > room and any(widths[index] > _LEAST_COLUMNS for index in text):
            widths[max(text, key=lambda index: widths[index])] -= 1
        return [*widths, min(last, room - sum(widths))]


def _cell(value: str | Text | int | None) -> Text:
    """Return a cell on one line, as Text, since rich would read `pack[plan]` in a str as markup."""
    if isinstance(value, Text):
        return value
    text = "" if value is None else value if isinstance(value, str) else f"{value:,}"
    return Text(" ".join(visible(text).splitlines()).replace("\t", " "))


def _padded(cell: Text, width: int, right: bool) -> str:
    blanks = " " * (width - cell.cell_len)
    return blanks + cell.plain if right else cell.plain + blanks


def _aligned(cell: Text, width: int, right: bool) -> Text:
    """Return a cell of a width; one that is too long is cut."""
    made = cell.copy()
    made.truncate(width, overflow="ellipsis")
    made.align("right" if right else "left", width)
    return made


def _cut(text: Text, width: int) -> Text:
    """Shorten a text by whole figures: `27,623 tokens · 216 shards`, `27,623 tokens · …`."""
    parts = text.plain.split(_BETWEEN)
    shorter = [f"{_BETWEEN.join(parts[:number])}{_BETWEEN}…" for number in range(len(parts) - 1, 0, -1)]
    fitting = (each for each in (*shorter, parts[0]) if cell_len(each) <= width)
    return text if text.cell_len <= width else Text(next(fitting, parts[0]), text.style)


class OneLine:
    """A text on one line, shortened by whole figures."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        yield _aligned(_cut(self.text, options.max_width), options.max_width, right=False)


def pairs(entries: Iterable[tuple[str, str | Text]]) -> Grid:
    """Return names with their values, one pair per line."""
    made = Grid.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in entries:
        made.add_row(_cell(name), value if isinstance(value, Text) else Text(visible(value)))
    return made
