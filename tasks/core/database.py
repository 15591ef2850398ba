"""How tokmill opens DuckDB: for local files only, and without extensions.

By default DuckDB downloads and loads extensions on its own, for example when a file turns out to be an SQLite
database or a query contains a URL. Here it cannot: automatic installation and loading are off, no extension
directory can exist, and the configuration is locked. All code opens DuckDB through `connect`; the linter
rejects any other way.

Where a database comes from elsewhere, as a store's catalog may, `within` bounds what its views can read.

DuckDB takes longer to start than to answer most questions, so a process keeps one that has nothing open
(`scratch_database`), and closes it before it forks, since DuckDB's threads are not in the fork. That helps
from DuckDB 2 on; DuckDB 1 ends a fork that opens it if its parent has ever done so.
"""

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.tasks.core.errors import StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NO_EXTENSIONS: Final[dict[str, str | bool]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "extension_directory": f"{os.devnull}/no-extensions",  # below a file, so there can be no such folder
}
# By folders; each has no database but its own, empty one.
_idle: list[tuple[tuple[Path, ...], "DuckDBPyConnection"]] = []
_MOST_IDLE: Final = 1


class NoDuckDBError(StoreError):
    """DuckDB is not installed: artifacts are made and found without it, but no query is answered."""


def require_duckdb() -> None:
    """Raise NoDuckDBError unless DuckDB is installed."""
    try:
        import duckdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise NoDuckDBError(
            "DuckDB is not installed, so there is no catalog to ask: python -m pip install duckdb"
        ) from error


def connect(
    path: Path | None = None, *, within: Sequence[Path] = (), **limits: str | int
) -> "DuckDBPyConnection":
    """Open a database file, or an empty database in memory if `path` is None.

    Args:
        path: a DuckDB file, or where to make one.
        within: no statement, nor a view or macro of an attached database, reaches a file outside these
            folders; no limit if there are none.
        limits: further settings: `threads`, `memory_limit`, `temp_directory`.

    Raises:
        NoDuckDBError: it is not installed.
    """
    require_duckdb()
    import duckdb  # importing DuckDB is slow, so only its users pay

    place = ":memory:" if path is None else str(path)
    connection = duckdb.connect(place, config={**_NO_EXTENSIONS, **limits})  # noqa: TID251 - the one place
    if within:
        quoted = ", ".join("'{}'".format(str(folder).replace("'", "''")) for folder in within)
        connection.execute(f"SET allowed_directories = [{quoted}]")
        connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def scratch_database(*within: Path) -> "Iterator[DuckDBPyConnection]":
    """Open an empty database in memory, `scratch`, which is the default of statements.

    Files are read below the folders `within` alone. A block may attach databases, but detaches them itself.
    After an error, nothing of it is kept.
    """
    connection = _started(within)
    try:
        connection.execute("ATTACH ':memory:' AS scratch")
        connection.execute("USE scratch")
        yield connection
        connection.execute("USE memory")
        connection.execute("DETACH scratch")
    except BaseException:
        connection.close()
        raise
    _idle.append((within, connection))
    _close_idle(_MOST_IDLE)


def _started(within: tuple[Path, ...]) -> "DuckDBPyConnection":
    """Return an idle connection, or a new one if there is none for these folders."""
    try:
        folders, connection = _idle.pop()
    except IndexError:
        return connect(within=within)
    if folders == within:
        return connection
    connection.close()
    return connect(within=within)


def _close_idle(most: int = 0) -> None:
    """Close idle connections until there are so few."""
    while len(_idle) > most:
        try:
            _idle.pop()[1].close()
        except IndexError:  # another thread took it
            return


os.register_at_fork(before=_close_idle)
atexit.register(_close_idle)
