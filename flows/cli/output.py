"""How commands speak: results on standard output, everything else on standard error.

A result is a table for people or JSON for scripts. A table is cut to the width of a terminal; into a file
or a pipe it is written in full.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNBOUNDED_COLUMNS = 10_000


def results() -> Console:
    """Return the console for results."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED_COLUMNS
    return Console(highlight=False, width=wide)


def messages() -> Console:
    """Return the console for progress and remarks."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Write one line of result, as it is: no wrapping, no markup."""
    results().print(text, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Write one JSON document of models, mappings, sequences and plain values."""
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, indent=2) + "\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Sequence[str] = ()) -> Table:
    """Return a table with one line a row; the columns named in `right` hold numbers."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=side, no_wrap=True, overflow="ellipsis")
    for row in rows:
        made.add_row(*row)
    return made


def pairs(entries: Mapping[str, str | Text]) -> Table:
    """Return names with their values, one pair a line."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in entries.items():
        made.add_row(name, value)
    return made


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
