"""How tokmill opens DuckDB: for local files only, and without extensions.

By default DuckDB downloads and loads extensions on its own, for example when a file turns out to be an SQLite
database or a query contains a URL. Here it cannot: automatic installation and loading are off, no extension
directory can exist, and the configuration is locked. All code opens DuckDB through `connect`; the linter
rejects any other way.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.tokenizer.core.stopping import interrupted_by_a_stop

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NO_EXTENSIONS: Final[dict[str, str | bool]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "extension_directory": f"{os.devnull}/no-extensions",  # below a file, so there can be no such folder
}
_MAGIC: Final = slice(8, 12), b"DUCK"


def connect(path: Path | None = None, **limits: str | int) -> "DuckDBPyConnection":
    """Open a database file, or an empty database in memory if `path` is None.

    Args:
        path: a DuckDB file, or where to make one.
        limits: further settings: `threads`, `memory_limit`, `temp_directory`.
    """
    import duckdb  # importing DuckDB is slow, so only its users pay

    place = ":memory:" if path is None else str(path)
    connection = duckdb.connect(place, config={**_NO_EXTENSIONS, **limits})  # noqa: TID251 - the one place
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def database_of_a_stage(**limits: str | int) -> "Iterator[DuckDBPyConnection]":
    """Open an empty database in memory, whose queries end if the run is being stopped; as `connect`."""
    with connect(**limits) as database, interrupted_by_a_stop(database.interrupt):  # type: ignore[arg-type]
        yield database


def is_database(head: bytes) -> bool:
    """Whether a file that begins with these 16 bytes is a DuckDB database."""
    place, magic = _MAGIC
    return head[place] == magic
