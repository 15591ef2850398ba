"""The catalog's tables and their version.

Whoever adds or changes a table or column (`tasks.store.tables`), or a view (`tasks.store.lineage_views`), or
what rows mean, adds one to `VERSION`. A catalog of an earlier version is made again from the store's files;
one of a newer version is left alone, and its user is told to use the newer tokmill.
"""

from typing import TYPE_CHECKING, Final

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.lineage_views import VIEWS, make_views
from tokmill.tasks.store.tables import TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION: Final = 9

_OWN: Final[dict[str, dict[str, str]]] = {
    "catalog_version": {"version": "INTEGER"},
    "catalog_files": {"path": "VARCHAR", "mtime_ns": "BIGINT", "size": "BIGINT", "key": "VARCHAR"},
    "catalog_parts": {"part": "VARCHAR", "time": "BIGINT"},
    "catalog_extra": {"table_name": "VARCHAR", "fingerprint": "VARCHAR", "digest": "VARCHAR"},
}
ALL_TABLES: Final = {**TABLES, **_OWN}


class BrokenCatalogError(StoreError):
    """The catalog's file cannot be used and has to be made again."""


class NewerCatalogError(StoreError):
    """The catalog is of a version that this tokmill does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the catalog is of version {version}, and this tokmill knows versions up to {VERSION}: use the "
            "tokmill that made it; or make it again for this one with `tokmill catalog rebuild`, which loses "
            "nothing"
        )


def check_version(connection: "DuckDBPyConnection", *, empty: bool = False) -> bool:
    """Return whether the database holds the catalog's tables; it may lack them only if `empty`.

    Raises:
        NewerCatalogError: a newer tokmill made it.
        BrokenCatalogError: an earlier one did, or the database holds something else.
    """
    import duckdb  # imported here because it is slow and not every command needs it

    try:
        versions = connection.execute("SELECT version FROM catalog_version").fetchall()
    except duckdb.CatalogException:  # in this order, since listing the tables takes ten times as long
        found = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        if empty and not found:
            return False
        raise BrokenCatalogError(f"it holds other tables: {found}") from None
    if len(versions) == 1 and isinstance(versions[0][0], int) and versions[0][0] > VERSION:
        raise NewerCatalogError(versions[0][0])
    if versions != [(VERSION,)]:
        said = ", ".join(str(version) for (version,) in versions)
        raise BrokenCatalogError(f"its version is {said} and not {VERSION}")
    return True


def make_tables(connection: "DuckDBPyConnection", *, lineage: bool = True) -> None:
    """Make the tables in an empty database, and the views of lineage."""
    connection.execute("BEGIN")
    for name, columns in ALL_TABLES.items():
        listed = ", ".join(f"{column} {sql_type}" for column, sql_type in columns.items())
        connection.execute(f"CREATE TABLE {name} ({listed})")
    if lineage:
        make_views(connection)
    connection.execute("INSERT INTO catalog_version VALUES (?)", [VERSION])
    connection.execute("COMMIT")


def check_tables(connection: "DuckDBPyConnection") -> None:
    """Raise BrokenCatalogError unless every table of the catalog has its columns, and each view is ours."""
    connection.execute("ROLLBACK")
    found = connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal AND schema_name = 'main'"
    ).fetchall()
    wanted = {(table, *column) for table, columns in ALL_TABLES.items() for column in columns.items()}
    if lacking := sorted(wanted.difference(found)):
        raise BrokenCatalogError(f"it lacks {lacking[0]}")
    views = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name = 'snapshot'"
    ).fetchall()
    if foreign := sorted({name for (name,) in views} - VIEWS.keys()):
        raise BrokenCatalogError(f"it has the view {foreign[0]}")
