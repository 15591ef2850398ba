"""A DuckDB connection for one short transaction: one process at a time, and told apart when it goes wrong.

    busy      another process (or another tool, such as the DuckDB shell) has the file open; waited for,
              within bounds
    broken    the file is no database, is corrupt, or holds other tables than this version's; the catalog is
              made again

Anything else is an error of its own.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock, Timeout

from tasks.errors import StoreError
from tasks.store.durable import told_as
from tasks.store.indexing import BrokenCatalogError, check_tables, prepare

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_POLL_SECONDS = 0.02
_BUSY: Final = ("Could not set lock", "different configuration")
_BROKEN: Final = (
    "Corrupt database",
    "not a valid DuckDB database",
    "version number",
    "Could not read enough",
)


@contextmanager
def locked(lock_path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the catalog's lock.

    Raises:
        StoreError: another process holds it for longer than `wait_seconds`, or it cannot be taken at all.
    """
    lock = FileLock(lock_path, timeout=wait_seconds)
    with told_as(f"catalog lock {lock_path} cannot be taken"):
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
def opened(path: Path | None, wait_seconds: float) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to the catalog with its tables made; to an empty one in memory if `path` is None.

    Raises:
        BrokenCatalogError: the file has to be made again; raised from the block as well.
        StoreError: the file is held by another tool for too long, or DuckDB refuses what the block asks.
    """
    import duckdb

    try:
        connection = _connect(path, wait_seconds)
        try:
            prepare(connection)
            yield connection
        finally:
            connection.close()
    except duckdb.Error as error:
        if _is_broken(error):
            raise BrokenCatalogError(str(error)) from error
        raise StoreError(f"catalog {path}: {error}") from error


def answer(
    connection: "DuckDBPyConnection", sql: str, parameters: Sequence[Any] | Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows that answer a question, one dict a row.

    Raises:
        BrokenCatalogError: a table is not as it should be.
        StoreError: DuckDB refuses the question.
    """
    import duckdb

    connection.execute("BEGIN TRANSACTION READ ONLY")  # what is changed here would not be made good by a sync
    try:
        found = connection.execute(sql, parameters or None)
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    except _wrong_question() as error:
        check_tables(connection)
        raise StoreError(f"the catalog refuses the question: {error}") from error
    finally:
        with suppress(duckdb.TransactionException):  # a question may have ended it
            connection.execute("ROLLBACK")


def _wrong_question() -> tuple[type[Exception], ...]:
    """What DuckDB raises where the question is wrong and not the catalog."""
    import duckdb

    return duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.TransactionException


def _connect(path: Path | None, wait_seconds: float) -> "DuckDBPyConnection":
    import duckdb

    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return duckdb.connect(":memory:" if path is None else str(path))
        except duckdb.Error as error:
            if not any(sign in str(error) for sign in _BUSY):
                raise
            if time.monotonic() > deadline:
                raise StoreError(
                    f"the catalog is busy: another program has had {path} open for {wait_seconds:g} s; "
                    f"close it ({error})"
                ) from error
        time.sleep(_POLL_SECONDS)


def _is_broken(error: Exception) -> bool:
    """Whether our own statements failed for the file's sake: not for want of space, memory or permission."""
    import duckdb

    if isinstance(error, duckdb.OperationalError) and not isinstance(error, duckdb.SerializationException):
        return any(sign in str(error) for sign in _BROKEN)
    return True
