"""Tables from artifacts: `catalog/<table>.parquet` becomes rows of the DuckDB table `<table>`.

Its columns are the artifact's `fingerprint` and the union, by name, of the columns of the files. It depends
on the present artifacts and not on the order in which they came.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.remote import pull
from tokmill.tasks.store.tables import ALL_TABLES, VIEWS, Report

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FOLDER = "catalog"
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FILE = re.compile(r"catalog/([^/]+)\.parquet")
_OWN = ALL_TABLES.keys() | VIEWS.keys()


class Part(NamedTuple):
    """One artifact's file of one table."""

    kind: str
    fingerprint: str
    digest: str
    path: Path

    @property
    def select(self) -> str:
        """Its rows as SQL; the fingerprint is hexadecimal and the path is quoted."""
        quoted = str(self.path).replace("'", "''")
        return f"SELECT '{self.fingerprint}' AS fingerprint, * FROM read_parquet('{quoted}')"  # noqa: S608


class Stale(NamedTuple):
    """A table that needs an update: the parts it should have, and (fingerprint, digest) of those it has."""

    table: str
    parts: list[Part]
    held: set[tuple[str, str]]


def check_extra_tables(out: Path) -> None:
    """Refuse tables that the catalog cannot hold."""
    for path in sorted(out / FOLDER / entry.name for entry in disk.entries(out / FOLDER)):
        if path.suffix != ".parquet" or not _is_extra(path.stem):
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


def _column_names(path: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return [str(name) for name in parquet.read_schema(path).names]
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{FOLDER}/{path.name} cannot be read as Parquet: {error}") from error


def sync_extra_tables(connection: "DuckDBPyConnection", layout: Layout, say: Report) -> None:
    """Update every extra table to the artifacts in the catalog."""
    import duckdb

    for table, parts, held in stale_tables(connection, layout):
        readable = [part for part in parts if _is_readable(connection, part, say)]
        try:
            _update(connection, table, readable, held)
        except duckdb.Error as error:  # a page that is damaged, which must not stop every query
            connection.execute("ROLLBACK")
            say(f"the catalog leaves the table {table} as it was: {error}; run `verify`")


def stale_tables(connection: "DuckDBPyConnection", layout: Layout) -> list[Stale]:
    """Return the tables that need an update."""
    files = connection.execute(
        "SELECT kind, fingerprint, digest, path FROM files JOIN artifacts USING (fingerprint) "
        "WHERE starts_with(path, 'catalog/')"
    ).fetchall()
    tables: dict[str, Stale] = {}
    for kind, fingerprint, digest, path in sorted(files):
        named = _FILE.fullmatch(path)
        if named is not None and _is_extra(named[1]):
            part = Part(kind, fingerprint, digest, layout.artifact(kind, fingerprint) / path)
            tables.setdefault(named[1], Stale(named[1], [], set())).parts.append(part)
    for table, *held in connection.execute(
        "SELECT table_name, fingerprint, digest FROM catalog_extra"
    ).fetchall():
        tables.setdefault(table, Stale(table, [], set())).held.add((held[0], held[1]))
    return [
        tables[table]
        for table in sorted(tables)
        if {part[1:3] for part in tables[table].parts} != tables[table].held
    ]


def _is_readable(connection: "DuckDBPyConnection", part: Part, say: Report) -> bool:
    import duckdb

    try:
        pull(part.path.parents[1], [f"{FOLDER}/{part.path.name}"])
        with disk.opened(part.path):  # DuckDB would wait for a FIFO
            _schema(connection, part.select)
    except (duckdb.Error, OSError) as error:
        say(f"the catalog leaves out {part.path}: {error}; run `verify`")
        return False
    return True


def _schema(connection: "DuckDBPyConnection", query: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {query}").fetchall()]


def _update(
    connection: "DuckDBPyConnection", table: str, parts: list[Part], held: set[tuple[str, str]]
) -> None:
    """Append the new parts if none was removed and the columns are equal; else make the table again."""
    new = [part for part in parts if part[1:3] not in held]
    stays = len(parts) - len(new) == len(held) > 0
    connection.execute("BEGIN")
    if stays and all(
        _schema(connection, part.select) == _schema(connection, f"FROM {table}") for part in new
    ):
        for part in new:
            connection.execute(f"INSERT INTO {table} BY NAME {part.select}")
    else:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        if parts:
            union = " UNION ALL BY NAME ".join(part.select for part in parts)
            connection.execute(f"CREATE TABLE {table} AS {union}")
    connection.execute("DELETE FROM catalog_extra WHERE table_name = ?", [table])
    for part in parts:
        rows = [table, part.fingerprint, part.digest]
        connection.execute("INSERT INTO catalog_extra VALUES (?, ?, ?)", rows)
    connection.execute("COMMIT")
