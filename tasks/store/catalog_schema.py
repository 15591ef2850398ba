"""The version of the catalog's tables, and how a catalog of an earlier version becomes one of this version.

Whoever adds or changes a table or column (`tasks.store.tables`), or a view (`tasks.store.lineage_views`),
adds one to `VERSION`. Nothing else is needed: a migration makes the views again, keeps the tables whose
columns are as they were and whose rows mean what they meant (`MEANING`), makes the others anew, and forgets
the files that their rows came from, so that the sync after it reads these files again, and no others.

The laws:

- a migrated catalog has the rows that `rebuild` gives;
- a copy of the earlier catalog, `catalog.duckdb.v<its version>`, is kept beside the new one;
- the migration is done in a copy, like every other change (`tasks.store.connection`);
- a catalog of a newer version is left alone: its user is told to use the newer tokmill.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.lineage_views import make_views
from tokmill.tasks.store.tables import TABLES, TREES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION: Final = 9
MEANING: Final[dict[str, int]] = {}
"""The version in which a table's rows last changed their meaning, though not its columns; 1 by default."""

_OWN: Final[dict[str, dict[str, str]]] = {
    "catalog_version": {"version": "INTEGER"},
    "catalog_files": {"path": "VARCHAR", "mtime_ns": "BIGINT", "size": "BIGINT", "key": "VARCHAR"},
    "catalog_parts": {"part": "VARCHAR", "time": "BIGINT"},
    "catalog_extra": {"table_name": "VARCHAR", "fingerprint": "VARCHAR", "digest": "VARCHAR"},
}
ALL_TABLES: Final = {**TABLES, **_OWN}
_BACKUP = "{}.v{}"


class BrokenCatalogError(StoreError):
    """The catalog's file cannot be used and has to be made again."""


class EarlierCatalogError(BrokenCatalogError):
    """The catalog is of an earlier version, and can be migrated."""

    def __init__(self, version: int) -> None:
        super().__init__(f"its version is {version} and not {VERSION}")
        self.version = version


class NewerCatalogError(StoreError):
    """The catalog is of a version that this tokmill does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the catalog is of version {version}, and this tokmill knows versions up to {VERSION}: use the "
            "tokmill that made it; or make it again for this one with `tokmill catalog rebuild`, which loses "
            f"nothing (the other one is kept as {_BACKUP.format('catalog.duckdb', version)})"
        )
        self.version = version


def backup_path(catalog: Path, version: int) -> Path:
    """Return where a catalog of another version is kept: `catalog.duckdb.v2`."""
    return catalog.with_name(_BACKUP.format(catalog.name, version))


def check_version(connection: "DuckDBPyConnection", *, empty: bool = False) -> bool:
    """Return whether the database holds the catalog's tables; it may lack them only if `empty`.

    Raises:
        NewerCatalogError: a newer tokmill made it.
        EarlierCatalogError: an earlier one did.
        BrokenCatalogError: the database holds something else.
    """
    import duckdb  # imported here because it is slow and not every command needs it

    try:
        versions = connection.execute("SELECT version FROM catalog_version").fetchall()
    except duckdb.CatalogException:  # in this order, since listing the tables takes ten times as long
        found = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        if empty and not found:
            return False
        raise BrokenCatalogError(f"it holds other tables: {found}") from None
    if len(versions) != 1 or not isinstance(versions[0][0], int) or versions[0][0] < 1:
        raise BrokenCatalogError(f"its version is {versions} and not {VERSION}")
    (version,) = versions[0]
    if version > VERSION:
        raise NewerCatalogError(version)
    if version < VERSION:
        raise EarlierCatalogError(version)
    return True


def make_tables(connection: "DuckDBPyConnection", *, lineage: bool = True) -> None:
    """Make the tables in an empty database, and the views of lineage."""
    connection.execute("BEGIN")
    _create(connection, ALL_TABLES)
    if lineage:
        make_views(connection)
    connection.execute("INSERT INTO catalog_version VALUES (?)", [VERSION])
    connection.execute("COMMIT")


def check_tables(connection: "DuckDBPyConnection") -> None:
    """Raise BrokenCatalogError unless every table of the catalog has its columns."""
    connection.execute("ROLLBACK")
    found = _found_columns(connection)
    wanted = {(table, *column) for table, columns in ALL_TABLES.items() for column in columns.items()}
    have = {(table, *column) for table, columns in found.items() for column in columns.items()}
    if not wanted <= have:
        raise BrokenCatalogError(f"it lacks {sorted(wanted - have)[0]}")


def migrate(connection: "DuckDBPyConnection", version: int) -> None:
    """Bring a catalog of an earlier version to this one; a sync has to follow."""
    found = _found_columns(connection)
    changed = {table for table, columns in ALL_TABLES.items() if found.get(table) != columns}
    changed |= {table for table, since in MEANING.items() if since > version}
    trees = {TREES[table] for table in changed & TABLES.keys()}
    changed |= {"catalog_parts"}  # every file is looked at again
    if "catalog_files" in changed:
        changed, trees = set(ALL_TABLES), set(TREES.values())
    again = {table for table in TABLES if TREES[table] in trees} | changed
    connection.execute("BEGIN")
    if "catalog_files" not in again:
        _forget(connection, trees)
    for table in sorted(again):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    _create(connection, again)
    make_views(connection)
    connection.execute("DELETE FROM catalog_version")
    connection.execute("INSERT INTO catalog_version VALUES (?)", [VERSION])
    connection.execute("COMMIT")


def _forget(connection: "DuckDBPyConnection", trees: set[str]) -> None:
    """Forget the files of these trees; the records' is '', since it has many folders."""
    known = sorted({*TREES.values()} - {""})
    for tree in sorted(trees):
        of_tree = "split_part(path, '/', 1) = ?" if tree else "NOT list_contains(?, split_part(path, '/', 1))"
        connection.execute(f"DELETE FROM catalog_files WHERE {of_tree}", [tree or known])  # noqa: S608


def _create(connection: "DuckDBPyConnection", tables: Iterable[str]) -> None:
    for name in tables:
        columns = ", ".join(f"{column} {sql_type}" for column, sql_type in ALL_TABLES[name].items())
        connection.execute(f"CREATE TABLE {name} ({columns})")


def _found_columns(connection: "DuckDBPyConnection") -> dict[str, dict[str, str]]:
    """Return the columns of each table of the databases that are open, in their order."""
    listed = (
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal AND schema_name = 'main' ORDER BY table_name, column_index"
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, sql_type in connection.execute(listed).fetchall():
        found.setdefault(table, {})[column] = sql_type
    return found
