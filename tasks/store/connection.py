"""Connections to the catalog's snapshot: to read it, to replace it, or to change a private copy.

The snapshot is one DuckDB file that is never written in place. A writer copies it, changes the copy, and
renames the copy to the snapshot's name while it holds a lock that only writers take. So a reader, in a
notebook or here, can keep its file open for as long as it likes, and nobody waits for it.

    broken    the file is not a database, is corrupt, or holds the tables of another version; the catalog is
              made again
    taken     another program has opened the snapshot for writing; it is read from a copy, and the other
              program's changes are lost with its file

Anything else is reported as it is.
"""

import errno
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock, Timeout

from tokmill.tasks.core.database import is_database, require_duckdb, scratch_database
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.catalog_schema import (
    BrokenCatalogError,
    check_tables,
    check_version,
)
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.indexing import prepare
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.workspace import workspace

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_POLL_SECONDS = 0.02
_TAKEN: Final = ("Could not set lock", "already attached")
_LACKS: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
_BROKEN: Final = (
    "Corrupt database",
    "not a valid DuckDB database",
    "version number",
    "Could not read enough",
)


def has_snapshot(path: Path) -> bool:
    """Whether the snapshot is there."""
    return path.exists()


def snapshot_age_seconds(path: Path) -> float:
    """Return the seconds since the snapshot was replaced; infinity if there is none."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def snapshot_bytes(path: Path) -> int:
    """Return the size of the snapshot; 0 if there is none."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


@contextmanager
def locked(lock_path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock for replacing the snapshot.

    Raises:
        StoreError: another process holds it for longer than `wait_seconds`, or it cannot be taken at all.
    """
    lock = FileLock(lock_path, timeout=wait_seconds)
    with reported_as(f"catalog lock {lock_path} cannot be taken"):
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(poll_interval=_POLL_SECONDS)
        except Timeout as error:
            raise StoreError(
                f"the catalog is busy: another process has held {lock_path} for {wait_seconds:g} s; "
                "wait for it, or end it if it hangs"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def reading(path: Path) -> Iterator["DuckDBPyConnection"]:
    """Yield a read-only connection to the snapshot.

    Raises:
        BrokenCatalogError: the file has to be made again; the block may raise it, too.
        StoreError: DuckDB rejects a statement of the block.
    """
    with _in_memory(path) as connection, attached(connection, path):
        check_version(connection)
        yield connection


@contextmanager
def private(*, lineage: bool = True) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to an empty catalog in memory.

    Args:
        lineage: with the views of lineage.

    Raises:
        StoreError: DuckDB rejects a statement of the block.
    """
    with _in_memory(None) as connection:
        prepare(connection, lineage=lineage)
        yield connection


@contextmanager
def replacing(layout: Layout, *, anew: bool) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to a copy of the snapshot, which replaces it if the block succeeds.

    Args:
        layout: the store; the caller holds the catalog's lock.
        anew: start with an empty catalog.

    Raises:
        BrokenCatalogError, StoreError: as `reading`; or the copy cannot be written.
    """
    path = layout.catalog
    with reported_as(f"catalog {path} cannot be written"), workspace(layout) as folder:
        copy = folder / path.name
        if not anew:
            _copy(path, copy)
        with _translated(path), scratch_database() as connection, _opened(connection, copy):
            prepare(connection)
            yield connection
            connection.execute("CHECKPOINT")  # detaching would do this too, but not report a full disk
        path.with_name(path.name + ".wal").unlink(missing_ok=True)  # of a program that wrote in place
        copy.replace(path)


def answer(
    connection: "DuckDBPyConnection", sql: str, parameters: Sequence[Any] | Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a query, one dict per row.

    Raises:
        BrokenCatalogError: a table is missing or lacks a column.
        StoreError: DuckDB rejects the query.
    """
    with _answering(connection):
        found = connection.execute(sql, parameters or None)
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def arrow_answer(
    connection: "DuckDBPyConnection", sql: str, parameters: Sequence[Any] | Mapping[str, Any]
) -> "pa.Table":
    """Return the rows of a query as an Arrow table.

    Raises:
        BrokenCatalogError, StoreError: as `answer`.
    """
    with _answering(connection):
        table: pa.Table = connection.sql(sql, params=parameters or None).to_arrow_table()
        return table


@contextmanager
def _answering(connection: "DuckDBPyConnection") -> Iterator[None]:
    """Let a query of this block change nothing, and translate what DuckDB says against it."""
    import duckdb

    connection.execute("BEGIN TRANSACTION READ ONLY")  # a sync would not repair what is changed here
    try:
        yield
    except _wrong_question() as error:
        check_tables(connection)
        raise StoreError(f"DuckDB rejects the query: {error}") from error
    finally:
        with suppress(duckdb.TransactionException):  # a query may have ended it
            connection.execute("ROLLBACK")


def _wrong_question() -> tuple[type[Exception], ...]:
    """Return the exceptions by which DuckDB blames the query, and not the catalog."""
    import duckdb

    return duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.TransactionException


@contextmanager
def _in_memory(path: Path | None) -> Iterator["DuckDBPyConnection"]:
    with _translated(path), scratch_database() as connection:
        yield connection


@contextmanager
def attached(connection: "DuckDBPyConnection", path: Path) -> Iterator[None]:
    """Attach the snapshot as the database `snapshot`, and make it the default of statements.

    It is attached to a database in memory, since DuckDB keeps one instance per path that a process connects
    to, and would return the one that a notebook holds of an older snapshot.

    Raises:
        BrokenCatalogError: the file is not a DuckDB database.
    """
    import duckdb

    _check_kind(path)
    with ExitStack() as stack:
        try:
            _attach(connection, path, "(READ_ONLY, TYPE DUCKDB)")
        except (duckdb.OperationalError, duckdb.BinderException) as error:  # DuckDB 1.4.0 raises the latter
            if not any(sign in str(error) for sign in _TAKEN):
                raise
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tokmill-catalog-"))
            copy = Path(folder) / path.name
            _copy(path, copy)
            _attach(connection, copy, "(READ_ONLY, TYPE DUCKDB)")
        with _in_use(connection):
            yield


@contextmanager
def _opened(connection: "DuckDBPyConnection", copy: Path) -> Iterator[None]:
    """As `attached`, a file that is written, and made if it is not there."""
    _attach(connection, copy, "(TYPE DUCKDB)")
    with _in_use(connection):
        yield


@contextmanager
def _in_use(connection: "DuckDBPyConnection") -> Iterator[None]:
    """Make the database `snapshot` the default of statements; it is detached unless the block fails."""
    connection.execute("USE snapshot")
    yield
    connection.execute("USE scratch")
    connection.execute("DETACH snapshot")


def _attach(connection: "DuckDBPyConnection", path: Path, options: str) -> None:
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS snapshot {options}")


def _copy(path: Path, copy: Path) -> None:
    _check_kind(path)
    with (
        reported_as(f"catalog {path} cannot be copied"),
        disk.opened(path) as source,
        copy.open("xb") as target,
    ):
        shutil.copyfileobj(source, target, 1 << 20)


def _check_kind(path: Path) -> None:
    """Reject files that DuckDB would open as another program's database, or would block on."""
    try:
        with disk.opened(path) as file:
            head = file.read(16)
    except OSError as error:
        raise BrokenCatalogError(error.strerror or str(error)) from error
    if not is_database(head):
        what = "an SQLite database" if head.startswith(b"SQLite") else "not a DuckDB database"
        raise BrokenCatalogError(f"it is {what}")


@contextmanager
def _translated(path: Path | None) -> Iterator[None]:
    """Raise DuckDB's errors of the block as StoreError."""
    require_duckdb()
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if _is_broken(error):
            raise BrokenCatalogError(str(error)) from error
        raise StoreError(f"catalog {path}: {error}") from error


def _is_broken(error: Exception) -> bool:
    """Whether our own statements failed because of the file, not for lack of space, memory or permission."""
    import duckdb

    if any(lack in str(error) for lack in _LACKS):  # DuckDB reports a full disk as a fatal error, too
        return False
    if isinstance(error, duckdb.OperationalError) and not isinstance(error, duckdb.SerializationException):
        return any(sign in str(error) for sign in _BROKEN)
    return True
