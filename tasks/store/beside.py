"""Show a catalog as it would be after an update, without writing it: as views over it and a few new rows.

A store of many artifacts has a large catalog, and copying it takes longer than most questions. So what was
published since it was written is read into tables in memory, and a table of the catalog becomes a view:

    the catalog's rows, without those of files that changed or are gone  ∪  the new rows

The views have the tables' names and columns, so that a question does not notice. Tables that artifacts bring
(`tasks.store.extra_tables`) are seen likewise, or made from their files if their columns change.

Where files have only been added, tables without new rows need no view: they are found in the catalog, which
comes second. The views of lineage see views only, so for a question that may name them, every table is one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tokmill.tasks.store.catalog_schema import ALL_TABLES
from tokmill.tasks.store.extra_tables import held_tables, readable_parts, same_columns, stale_tables
from tokmill.tasks.store.indexing import Difference, Read, Report, insert
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.lineage_views import make_views
from tokmill.tasks.store.tables import KEYS, Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_KEYS: Final = {**KEYS, "catalog_files": "key"}
_BASE: Final = "snapshot.main"


def show_beside(
    connection: "DuckDBPyConnection",
    layout: Layout,
    difference: Difference,
    read: Read,
    say: Report,
    *,
    lineage: bool = True,
) -> None:
    """Make the views; from here on, statements of the connection use them.

    Args:
        connection: in memory, with the catalog attached as `snapshot`.
        layout: the store.
        difference: between the catalog and the store.
        read: the changed files.
        say: receives a line about each table of an artifact that cannot be read.
        lineage: make the views of lineage, too.
    """
    connection.execute("USE scratch")
    connection.execute("CREATE SCHEMA beside")
    if difference.stale:
        connection.execute("CREATE TABLE beside.stale (key VARCHAR)")
        connection.execute(
            f"INSERT INTO beside.stale SELECT key FROM {_BASE}.catalog_files "  # noqa: S608 - a constant
            "WHERE path IN (SELECT unnest(?::VARCHAR[]))",
            [list(difference.stale)],
        )
    every = lineage or bool(difference.stale)
    for name in ALL_TABLES:
        rows = read.rows.get(name, [])
        if rows or every:
            _show(connection, name, rows, among_stale=bool(difference.stale))
    if lineage:
        make_views(connection)
    if not every:
        connection.execute(f"SET search_path = 'system.main,scratch.main,{_BASE}'")
    _show_extra_tables(connection, layout, say)


def _show(connection: "DuckDBPyConnection", name: str, rows: Sequence[Row], *, among_stale: bool) -> None:
    """Make the view of one table."""
    key = _KEYS.get(name)
    shown = f"SELECT b.* FROM {_BASE}.{name} b"  # noqa: S608 - constants, as below
    if key is not None and among_stale:
        shown += f" ANTI JOIN beside.stale s ON b.{key} = s.key"
    if rows:
        made = ", ".join(f"{column} {sql_type}" for column, sql_type in ALL_TABLES[name].items())
        connection.execute(f"CREATE TABLE beside.{name} ({made})")
        insert(connection, name, rows, "beside.")
        shown += f" UNION ALL FROM beside.{name}"
    connection.execute(f"CREATE VIEW {name} AS {shown}")


def _show_extra_tables(connection: "DuckDBPyConnection", layout: Layout, say: Report) -> None:
    stale = {table: (parts, had) for table, parts, had in stale_tables(connection, layout)}
    for table in held_tables(connection) - stale.keys():
        connection.execute(f"CREATE VIEW scratch.main.{table} AS FROM {_BASE}.{table}")
    for table, (parts, had) in stale.items():
        new = [part for part in parts if (part.fingerprint, part.digest) not in had]
        base = f"{_BASE}.{table}"
        readable = readable_parts(connection, new, say)
        if len(parts) - len(new) == len(had) > 0 and same_columns(connection, base, readable):
            selects = [f"FROM {base}", *(part.select for part in readable)]
        else:
            selects = [part.select for part in readable_parts(connection, parts, say)]
        if selects:
            connection.execute(f"CREATE VIEW scratch.main.{table} AS {' UNION ALL BY NAME '.join(selects)}")
