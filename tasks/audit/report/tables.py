"""The tables in an audit's folder; those that are missing are gaps, which the report marks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import parquet

from tokmill.tasks.audit import entropy, gates, parity, probes, sources, suspects, tokens
from tokmill.tasks.audit.learned import Learned
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.core.errors import AuditError

Row = dict[str, Any]
SCHEMAS = {
    "vocab_tokens": tokens.SCHEMA,
    "vocab_sources": sources.SOURCES,
    "vocab_lengths": sources.LENGTHS,
    "vocab_frequencies": sources.FREQUENCIES,
    "vocab_roundtrip": sources.ROUND_TRIPS,
    "vocab_entropy": entropy.SCHEMA,
    "vocab_parity": parity.SCHEMA,
    "vocab_probes": probes.SCHEMA,
    "vocab_suspects": suspects.SCHEMA,
    "vocab_gates": gates.SCHEMA,
}
NEEDED = {
    "vocab_tokens": ("kind",),
    "vocab_sources": ("source",),
    "vocab_lengths": ("source", "num_bytes", "num_occurrences"),
    "vocab_frequencies": ("source", "rank", "num_occurrences"),
    "vocab_roundtrip": ("source",),
    "vocab_entropy": ("source",),
    "vocab_parity": ("language", "reference", "num_lines"),
    "vocab_probes": ("probe", "group", "ids", "tokens", "num_tokens"),
}
"""By table, the columns without which it cannot be shown; audits of other versions may lack the others."""
LEAST, AGREEMENT = "least_trained", "agreement"
"""Tables of `tasks.audit.learned`, where a model's embeddings were given."""


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
            summary = orjson.loads(path.read_bytes()) if path.exists() else {}
        except orjson.JSONDecodeError as error:
            raise AuditError(f"report: {path} is not JSON ({error}); make the audit again") from error
        if not isinstance(summary, dict):
            raise AuditError(f"report: {path} is not a JSON object; make the audit again")
        return cls(tables, summary)

    def with_tables_of(self, folder: Path) -> "Tables":
        """Return the same with the tables of another folder, such as those of `usage`."""
        return Tables(self.tables | Tables.read(folder).tables, self.summary)

    def with_learned(self, learned: Learned) -> "Tables":
        """Return the same with a model's indicators."""
        more = {"vocab_suspects": learned.suspects, LEAST: learned.least, AGREEMENT: learned.agreement}
        return Tables(self.tables | more, self.summary)

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


def source_name(source: str) -> str:
    """Return how a source is called in the report."""
    return "all sources" if source == ALL else source


def _read(path: Path) -> pa.Table:
    try:
        table = parquet.ParquetFile(path).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise AuditError(f"report: {path} is not a Parquet file ({error}); make the audit again") from error
    problem = _problem(table, path.stem)
    if problem is not None:
        raise AuditError(f"report: {path}: {problem}, so another version wrote it; make the audit again")
    return table


def _problem(table: pa.Table, name: str) -> str | None:
    """Return why a table cannot be shown."""
    for column in NEEDED.get(name, ()):
        if column not in table.column_names:
            return f"it has no column {column!r}"
        if table[column].null_count:
            return f"{column!r} has empty values"
    for field in SCHEMAS.get(name, pa.schema([])):
        if field.name in table.column_names and table.schema.field(field.name).type != field.type:
            return f"{field.name!r} is {table.schema.field(field.name).type}, not {field.type}"
    return None
