"""Tables that the library returns: Arrow within, pandas or polars when asked for."""

import re
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.markdown import number
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_SHOWN_ROWS = 20
_NUMBERS = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64", "float", "double"})
_MOST_CHARS = 60
_DIGEST = re.compile(r"[0-9a-f]{32,}")
_DIGEST_CHARS = 12


class Table:
    """Rows of named columns.

    `len(table)`, iteration over rows as dicts, `table["column"]` as a list. Libraries that read Arrow's C
    interface (polars, DuckDB, pandas from 3) take it as it is.
    """

    def __init__(self, table: "pa.Table", title: str = "") -> None:
        """Wrap an Arrow table; `title` says what its rows are, for people."""
        self._table = table
        self._title = title

    @classmethod
    def of(cls, rows: list[dict[str, Any]], title: str) -> "Table":
        """Make a table of rows."""
        import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

        return cls(pa.Table.from_pylist(rows), title)

    def arrow(self) -> "pa.Table":
        """Return the table as Arrow's."""
        return self._table

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a DataFrame of pandas.

        Raises:
            UsageError: pandas is not installed.
        """
        require("pandas")
        return self._table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a DataFrame of polars.

        Raises:
            UsageError: polars is not installed.
        """
        return require("polars").from_arrow(self._table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dict per row."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches():
            yield from batch.to_pylist()

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self._table.column_names:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}")
        values: list[Any] = self._table[column].to_pylist()
        return values

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows, more = self._shown()
        widths = [max(map(len, column)) for column in zip(self.columns, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in (self.columns, *rows)]
        return "\n".join([*lines, *more])

    def _repr_html_(self) -> str:
        rows, more = self._shown()
        numbers = [field.name for field in self._table.schema if str(field.type) in _NUMBERS]
        detail = f"{len(self):,} {'row' if len(self) == 1 else 'rows'}"
        grid = markup.grid(self.columns, rows, numbers)
        return markup.sheet(self._title or "Table", grid, *map(markup.note, more), detail=detail)

    def _shown(self) -> tuple[list[list[str]], list[str]]:
        """Return the first rows as text, and a line that counts the others, if there are any."""
        rows = self._table.slice(0, _SHOWN_ROWS).to_pylist()
        hidden = len(self) - _SHOWN_ROWS
        more = [f"… {hidden:,} more"] if hidden > 0 else []
        return [[_cell(value) for value in row.values()] for row in rows], more


def require(library: str) -> Any:
    """Import a library that only some have; raises UsageError unless it is installed."""
    try:
        return import_module(library)
    except ImportError as error:
        raise UsageError(f"to_{library}() needs {library}: python -m pip install {library}") from error


def _cell(value: object) -> str:
    """Return a value of a table for people: nothing for null, few digits, the first ones of a digest."""
    if value is None:
        return ""
    if isinstance(value, bool | int):
        return number(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if _DIGEST.fullmatch(text):
        return text[:_DIGEST_CHARS]
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
