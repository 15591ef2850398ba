"""Tables from artifacts: `catalog/<table>.parquet` becomes rows of the DuckDB table `<table>`.

Its columns are the artifact's `fingerprint` and the union, by name, of the columns of the files. It depends
on the present artifacts and not on the order in which they came.
"""

import re
from collections.abc import Iterator
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
_OWN = ALL_TABLES.keys() | VIEWS.keys()
_DIFFERING = """
    SELECT table_name, list((kind, fingerprint, digest) ORDER BY kind, fingerprint) FILTER (now)
    FROM (SELECT path[9:-9] AS table_name, kind, fingerprint, digest, true AS now
          FROM files JOIN artifacts USING (fingerprint)
          WHERE starts_with(path, 'catalog/') AND ends_with(path, '.parquet')
          UNION ALL SELECT table_name, NULL, fingerprint, digest, false FROM catalog_extra)
    GROUP BY table_name
    HAVING list_sort(list((fingerprint, digest)) FILTER (now))
        IS DISTINCT FROM list_sort(list((fingerprint, digest)) FILTER (NOT now))
    ORDER BY table_name
"""


class _Part(NamedTuple):
    kind: str
    fingerprint: str
    digest: str
    path: Path

    @property
    def select(self) -> str:
        """Its rows as SQL; the fingerprint is hexadecimal and the path is quoted."""
        quoted = str(self.path).replace("'", "''")
        return f"SELECT '{self.fingerprint}' AS fingerprint, * FROM read_parquet('{quoted}')"  # noqa: S608


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


def stale_tables(connection: "DuckDBPyConnection", layout: Layout) -> Iterator[tuple[str, list[_Part]]]:
    """Yield the tables that need an update, each with the parts that it should have."""
    for table, files in connection.execute(_DIFFERING).fetchall():
        if _is_extra(table):
            folder = f"{FOLDER}/{table}.parquet"
            yield (
                table,
                [
                    _Part(kind, owner, digest, layout.artifact(kind, owner) / folder)
                    for kind, owner, digest in files or ()
                ],
            )


def sync_extra_tables(connection: "DuckDBPyConnection", layout: Layout, say: Report) -> None:
    """Make every extra table that is not of the artifacts in the catalog again."""
    import duckdb

    for table, parts in list(stale_tables(connection, layout)):
        readable = [part for part in parts if _is_readable(connection, part, say)]
        connection.execute("BEGIN")
        try:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            if readable:
                union = " UNION ALL BY NAME ".join(part.select for part in readable)
                connection.execute(f"CREATE TABLE {table} AS {union}")
            connection.execute("DELETE FROM catalog_extra WHERE table_name = ?", [table])
            for part in readable:
                connection.execute("INSERT INTO catalog_extra VALUES (?, ?, ?)", [table, *part[1:3]])
            connection.execute("COMMIT")
        except duckdb.Error as error:  # a page that is damaged, which must not stop every query
            connection.execute("ROLLBACK")
            say(f"the catalog leaves the table {table} as it was: {error}; run `verify`")


def _is_readable(connection: "DuckDBPyConnection", part: _Part, say: Report) -> bool:
    import duckdb

    try:
        pull(part.path.parents[1], [f"{FOLDER}/{part.path.name}"])
        with disk.opened(part.path):  # DuckDB would wait for a FIFO
            connection.execute(f"DESCRIBE {part.select}")
    except (duckdb.Error, OSError) as error:
        say(f"the catalog leaves out {part.path}: {error}; run `verify`")
        return False
    return True
