"""Prints results to standard output, and everything else to standard error.

A result is a table for people or JSON for scripts. A table is cut to the width of a terminal; to a file or a
pipe it is written in full.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import BaseModel
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.flows.run.events import Event, RunState
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Store

Part: TypeAlias = str | RenderableType | Mapping[str, str | Text]
"""A line, anything that rich can draw, or names with their values."""
_UNBOUNDED_COLUMNS = 10_000
_BETWEEN = " · "
_GAP = " " * 3
_LEAST_COLUMNS = 8  # of a column of text, in a terminal that is too narrow
_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # the direction of what follows


def results() -> Console:
    """Return the console for results."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED_COLUMNS
    return Console(highlight=False, width=wide)


def messages() -> Console:
    """Return the console for progress and notes."""
    return Console(stderr=True, highlight=False)


def draw(renderable: RenderableType, width: int | None = None) -> None:
    """Write a table or text for people; without trailing blanks unless on a terminal.

    Args:
        renderable: anything that rich can draw.
        width: columns to wrap at if not on a terminal; no wrapping if not given.
    """
    console = results()
    if console.is_terminal:
        console.print(renderable)
        return
    quick = renderable if isinstance(renderable, PlainTable) and console.width == _UNBOUNDED_COLUMNS else None
    if quick and (text := quick.plain()):
        sys.stdout.write(text)
        return
    with console.capture() as drawn:
        console.print(renderable, width=width)
    lines = (line.rstrip() for line in drawn.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_parts(parts: Iterable[Part]) -> None:
    """Write the parts of a result for people."""
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            draw(pairs(part) if isinstance(part, Mapping) else part)


def sections(parts: Mapping[str, Table | Mapping[str, str | Text]]) -> Iterable[Part]:
    """Yield tables, and names with values, below their headings; those that are empty are left out."""
    for heading, part in parts.items():
        rows = pairs(part) if isinstance(part, Mapping) else part
        if rows.row_count:
            yield Text(f"\n{heading}" if heading else "", style="bold")
            yield rows


def warning(text: str) -> Text:
    """Return a warning as a part of a result."""
    return Text(f"warning: {text}", style="yellow")


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


def shown(path: Path) -> str:
    """Return a path relative to the working directory if it is below it, else absolute."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def shown_store(store: "Store") -> str:
    """Return the URL of a store, or its folder as `shown`."""
    return store.location if "://" in store.location else shown(store.root)


def shown_address(store: "Store", ref: "ArtifactRef", path: str = "") -> str:
    """Return the URL of an artifact in a bucket or of a file of it, or its path as `shown`."""
    address = store.address(ref, path)
    return address if "://" in store.location else shown(Path(address))


def print_json(value: object) -> None:
    """Write one JSON document of models, mappings, sequences and plain values."""
    sys.stdout.write(json.dumps(_plain_json(value), ensure_ascii=False, indent=2) + "\n")


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    right: Sequence[str] = (),
    *,
    wrap: bool = False,
    least: int = _LEAST_COLUMNS,
) -> "PlainTable":
    """Return a table with one line per row.

    Args:
        columns: the headings.
        rows: the cells.
        right: columns that hold numbers.
        wrap: whether the last column is wrapped, not cut, if the terminal is too narrow.
        least: the width that the last column keeps there, at the cost of other columns of text.
    """
    cells = [[_plain_text(cell) for cell in row] for row in rows]
    made = PlainTable(columns, cells, right, least)
    for index, column in enumerate(columns):
        side: Literal["left", "right"] = "right" if column in right else "left"
        last = index == len(columns) - 1
        width = None if last else made.widths[index]  # only the last column shrinks in a narrow terminal
        folded: Literal["fold", "ellipsis"] = "fold" if last and wrap else "ellipsis"  # a name loses no end
        made.add_column(Text(column), justify=side, no_wrap=not last, min_width=width, overflow=folded)
    for *first, end in cells:
        made.add_row(*first, end if wrap else OneLine(end.copy()))
    return made


class PlainTable(Table):
    """A table whose lines can be written without rich, which takes 0.4 ms for each."""

    def __init__(
        self, columns: Sequence[str], cells: Sequence[Sequence[Text]], right: Sequence[str], least: int
    ) -> None:
        super().__init__(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        self._cells = cells
        self._lines = [list(columns), *([cell.plain for cell in row] for row in cells)]
        self.widths = [max(map(cell_len, column)) for column in zip(*self._lines, strict=True)]
        self._right = [column in right for column in columns]
        self._least = least
        self.num_columns = sum(self.widths) + len(_GAP) * (len(columns) - 1)
        """How many columns of a terminal it takes if no cell is cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; without room for all columns, each row becomes a list of names and values."""
        if self._fit(options.max_width):
            yield from super().__rich_console__(console, options)
            return
        for number, row in enumerate(self._cells):
            if number:
                yield Text()
            named = pairs({})
            for name, cell in zip(self._lines[0], row, strict=True):
                named.add_row(Text(name), cell)
            yield named

    def _fit(self, room: int) -> bool:
        """Take width from the widest columns of text, and return whether all columns have room then."""
        widths = [*self.widths[:-1], min(self.widths[-1], self._least)]
        room -= len(_GAP) * (len(widths) - 1)
        text = [index for index, is_number in enumerate(self._right[:-1]) if not is_number]
        while sum(widths) > room and any(widths[index] > _LEAST_COLUMNS for index in text):
            widest = max(text, key=lambda index: widths[index])
            widths[widest] -= 1
            self.columns[widest].min_width = self.columns[widest].max_width = widths[widest]
        return sum(widths) <= room

    def plain(self) -> str | None:
        """Return what rich would draw at any width, without styles; None if it has to be drawn."""
        if len(self._lines) == 1 or not all(cell.isprintable() for line in self._lines for cell in line):
            return None  # such as a cell of several lines
        if not all(self.widths) or self.num_columns + len(_GAP) > _UNBOUNDED_COLUMNS:
            return None
        drawn = [_GAP.join(map(_padded, line, self.widths, self._right)).rstrip() for line in self._lines]
        drawn.insert(1, "─" * self.num_columns)
        return "".join(f"{line}\n" for line in drawn)


def _padded(cell: str, width: int, right: bool) -> str:
    cell = cell.rstrip()
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if right else cell + blanks


def _plain_text(cell: str | Text) -> Text:
    """Return a cell as Text, since rich would read `pack[plan]` in a str as markup."""
    return cell if isinstance(cell, Text) else Text(visible(cell))


class OneLine:
    """A text on one line, shortened by whole figures: `27,623 tokens · 216 shards`, `27,623 tokens · …`."""

    def __init__(self, text: Text) -> None:
        self.text = text
        text.no_wrap, text.overflow = True, "ellipsis"

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return widths from 1 to that of the whole text."""
        return Measurement(1, max(self.text.cell_len, 1))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        parts, style = self.text.plain.split(_BETWEEN), self.text.style
        shorter = [f"{_BETWEEN.join(parts[:number])}{_BETWEEN}…" for number in range(len(parts) - 1, 0, -1)]
        fitting = (
            each for each in (self.text.plain, *shorter, parts[0]) if cell_len(each) <= options.max_width
        )
        yield Text(next(fitting, parts[0]), style, no_wrap=True, overflow="ellipsis")


def pairs(entries: Mapping[str, str | Text]) -> Table:
    """Return names with their values, one pair per line."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in entries.items():
        made.add_row(_plain_text(name), _plain_text(value))
    return made


def _plain_json(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain_json(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain_json(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
