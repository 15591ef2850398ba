"""The tables in an audit's folder, and the other ones that a report shows beside them."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from tokmill.tasks.audit import entropy, gates, parity, probes, sources, suspects, tokens, training_counts
from tokmill.tasks.audit.learned import Learned
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.core.errors import AuditError
from tokmill.tasks.formats.files.arrays import read_parquet
from tokmill.tasks.formats.files.manifests import readable

Row = dict[str, Any]
SCHEMAS = {
    "vocab_tokens": tokens.SCHEMA,
    "vocab_training": training_counts.TRAINING,
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
LEAST, AGREEMENT = "least_trained", "agreement"
"""Tables of `tasks.audit.learned`, where a model's embeddings were given."""


class Tables:
    """The tables that a report shows; `vocab_suspects` is missing if nothing was encoded since the audit."""

    def __init__(self, audit: Path, usage: Path | None = None, learned: Learned | None = None) -> None:
        """Read the tables of an audit; raises StoreError, AuditError if one is broken or of other columns."""
        folders = {name: usage if name == "vocab_suspects" else audit for name in SCHEMAS}
        self.tables = {name: _read(folder, name) for name, folder in folders.items() if folder is not None}
        if learned is not None:
            more = {"vocab_suspects": learned.suspects, LEAST: learned.least, AGREEMENT: learned.agreement}
            self.tables |= more

    def has(self, name: str) -> bool:
        """Whether there is such a table with rows."""
        return name in self.tables and len(self.tables[name]) > 0

    def rows(self, name: str, most: int | None = None) -> list[Row]:
        """Return the rows of a table, or its first ones."""
        rows: list[Row] = self.tables[name].slice(0, most).to_pylist()
        return rows

    def column(self, table: str, name: str) -> list[Any]:
        """Return a column."""
        values: list[Any] = self.tables[table][name].to_pylist()
        return values


def source_name(source: str) -> str:
    """Return how a source is called in the report."""
    return "all sources" if source == ALL else source


def _read(folder: Path, name: str) -> pa.Table:
    path = folder / "catalog" / f"{name}.parquet"
    with readable(path, "table of an audit"):
        table = read_parquet(path)
    for field in SCHEMAS[name]:
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise AuditError(
                f"report: {path} has no {field.name!r} of type {field.type}; make the audit again"
            )
    return table
