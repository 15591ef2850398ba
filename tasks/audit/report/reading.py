"""The tables in an audit's folder; those that are missing are gaps, which the report marks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import parquet

from tokmill.tasks.core.errors import AuditError

Row = dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """The tables of an audit by name, and its summary.

    Attributes:
        tables: those that the folder has.
        summary: what `summary.json` says; empty without one.
    """

    tables: dict[str, pa.Table]
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Tables":
        """Read all tables of a folder.

        Raises:
            AuditError: a file is broken, or there is no `catalog` folder.
        """
        if not (folder / "catalog").is_dir():
            raise AuditError(f"report: {folder} has no folder 'catalog'; name the folder of an audit")
        tables = {path.stem: _read(path) for path in sorted((folder / "catalog").glob("*.parquet"))}
        path = folder / "summary.json"
        try:
            return cls(tables, orjson.loads(path.read_bytes()) if path.exists() else {})
        except orjson.JSONDecodeError as error:
            raise AuditError(f"report: {path} is no JSON ({error}); make the audit again") from error

    def with_tables_of(self, folder: Path) -> "Tables":
        """Return the same with the tables of another folder, such as those of `usage`."""
        return Tables(self.tables | Tables.read(folder).tables, self.summary)

    def has(self, name: str) -> bool:
        """Whether there is such a table with rows."""
        return name in self.tables and len(self.tables[name]) > 0

    def rows(self, name: str, most: int | None = None) -> Sequence[Row]:
        """Return the rows of a table, or its first ones; none if it is missing."""
        if name not in self.tables:
            return []
        table = self.tables[name]
        found: list[Row] = (table if most is None else table.slice(0, most)).to_pylist()
        return found

    def column(self, table: str, name: str) -> Sequence[Any]:
        """Return a column; empty if it is missing."""
        if table not in self.tables or name not in self.tables[table].column_names:
            return []
        found: list[Any] = self.tables[table][name].to_pylist()
        return found


def _read(path: Path) -> pa.Table:
    try:
        return parquet.ParquetFile(path).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise AuditError(f"report: {path} is no Parquet file ({error}); make the audit again") from error
