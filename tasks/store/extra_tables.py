"""Tables from artifacts: `catalog/<table>.parquet` becomes rows of the DuckDB table `<table>`.

The first column is the artifact's `fingerprint`, followed by the file's columns. A table's schema is the
union, by name, of the schemas of its files. An artifact with exactly the table's columns is appended; one
with other columns, or one that was removed, causes the table to be made again. So the table depends on the
present artifacts and not on the order in which they came.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.lineage_views import VIEWS
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.tables import ALL_TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FOLDER = "catalog"
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FILE = re.compile(r"catalog/([^/]+)\.parquet")
_OWN = ALL_TABLES.keys() | VIEWS.keys()


@dataclass(frozen=True, order=True)
class Part:
    """One artifact's file of one table."""

    kind: str
    fingerprint: str
    digest: str
    path: Path

    @property
    def in_remote(self) -> tuple[str, list[str]]:
        """The artifact's name in a remote, and the file in it."""
        return f"{self.kind}/{self.path.parent.parent.name}", [f"{FOLDER}/{self.path.name}"]

    @property
    def select(self) -> str:
        """Its rows as SQL; the fingerprint is hexadecimal and the path is quoted."""
        quoted = str(self.path).replace("'", "''")
        return f"SELECT '{self.fingerprint}' AS fingerprint, * FROM read_parquet('{quoted}')"  # noqa: S608


def check_extra_tables(out: Path) -> None:
    """Refuse tables that the catalog cannot hold."""
    for path in sorted(out / FOLDER / entry.name for entry in disk.entries(out / FOLDER)):
        table = path.stem
        if path.suffix != ".parquet" or not _is_extra(table):
            raise StoreError(
                f"{FOLDER}/{path.name}: the folder holds <table>.parquet only, where <table> matches "
                f"{_TABLE.pattern} and is none of {sorted(_OWN)}"
            )
        if "fingerprint" in _column_names(path):
            raise StoreError(
                f"{FOLDER}/{path.name} has a column 'fingerprint', which the catalog adds; rename it"
            )


def _is_extra(table: str) -> bool:
    """Whether a table may be called so; what a record lists need not have passed the check above."""
    return _TABLE.fullmatch(table) is not None and table not in _OWN


def sync_extra_tables(connection: "DuckDBPyConnection", layout: Layout, say: Report) -> None:
    """Update every extra table to the artifacts in the catalog."""
    import duckdb

    for table, parts, had in stale_tables(connection, layout):
        readable = _readable_parts(connection, parts, say)
        try:
            _update(connection, table, readable, had)
        except (
            duckdb.Error
        ) as error:  # a page that is damaged; one artifact's table must not stop every question
            connection.execute("ROLLBACK")
            say(f"the catalog leaves the table {table} as it was: {error}; run `verify`")


def stale_tables(
    connection: "DuckDBPyConnection", layout: Layout
) -> list[tuple[str, list[Part], set[tuple[str, str]]]]:
    """Return the tables that need an update: each with the parts it should have, and those that it has."""
    wanted, held = _wanted(connection, layout), _held(connection)
    tables = [
        (table, wanted.get(table, []), held.get(table, set()))
        for table in sorted(wanted.keys() | held.keys())
    ]
    return [
        (table, parts, had)
        for table, parts, had in tables
        if {(part.fingerprint, part.digest) for part in parts} != had
    ]


def _wanted(connection: "DuckDBPyConnection", layout: Layout) -> dict[str, list[Part]]:
    rows = connection.execute(
        "SELECT kind, fingerprint, digest, path FROM files JOIN artifacts USING (fingerprint) "
        "WHERE starts_with(path, 'catalog/')"
    ).fetchall()
    tables: dict[str, list[Part]] = {}
    for kind, fingerprint, digest, path in sorted(rows):
        found = _FILE.fullmatch(path)
        if found is None or not _is_extra(found[1]):
            continue
        part = Part(kind, fingerprint, digest, layout.artifact(kind, fingerprint) / path)
        tables.setdefault(found[1], []).append(part)
    return tables


def _held(connection: "DuckDBPyConnection") -> dict[str, set[tuple[str, str]]]:
    held: dict[str, set[tuple[str, str]]] = {}
    rows = connection.execute("SELECT table_name, fingerprint, digest FROM catalog_extra").fetchall()
    for table, fingerprint, digest in rows:
        held.setdefault(table, set()).add((fingerprint, digest))
    return held


def _update(
    connection: "DuckDBPyConnection", table: str, parts: list[Part], held: set[tuple[str, str]]
) -> None:
    """Append the new parts if none was removed and the columns are equal; else make the table again."""
    new = [part for part in parts if (part.fingerprint, part.digest) not in held]
    stays = len(parts) - len(new) == len(held) > 0
    connection.execute("BEGIN")
    if stays and _same_columns(connection, table, new):
        for part in new:
            connection.execute(f"INSERT INTO {table} BY NAME {part.select}")
    else:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        if parts:
            union = " UNION ALL BY NAME ".join(part.select for part in parts)
            connection.execute(f"CREATE TABLE {table} AS {union}")
    connection.execute("DELETE FROM catalog_extra WHERE table_name = ?", [table])
    for part in parts:
        connection.execute(
            "INSERT INTO catalog_extra VALUES (?, ?, ?)", [table, part.fingerprint, part.digest]
        )
    connection.execute("COMMIT")


def _same_columns(connection: "DuckDBPyConnection", table: str, parts: Sequence[Part]) -> bool:
    """Whether all of these files have exactly the columns of a table."""
    return all(_schema(connection, part.select) == _schema(connection, f"FROM {table}") for part in parts)


def _readable_parts(connection: "DuckDBPyConnection", parts: Sequence[Part], say: Report) -> list[Part]:
    """Return the files that can be read; the others are reported."""
    return [part for part in parts if _readable(connection, part, say)]


def _readable(connection: "DuckDBPyConnection", part: Part, say: Report) -> bool:
    import duckdb

    try:
        if remote := remote_of(part.path):
            remote.pull(*part.in_remote)
        with disk.opened(part.path):  # DuckDB would wait for a FIFO
            _schema(connection, part.select)
    except (duckdb.Error, OSError) as error:
        say(f"the catalog leaves out {part.path}: {error}; run `verify`")
        return False
    return True


def _schema(connection: "DuckDBPyConnection", query: str) -> list[tuple[str, str]]:
    described = connection.execute(f"DESCRIBE {query}").fetchall()
    return [(row[0], row[1]) for row in described]


def _column_names(path: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return [str(name) for name in parquet.read_schema(path).names]
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{FOLDER}/{path.name} cannot be read as Parquet: {error}") from error
