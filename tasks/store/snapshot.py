"""The catalog's file: one DuckDB database that is never written in place.

A writer copies it, changes the copy, and renames the copy to the file's name while it holds a lock that only
writers take. So a reader, in a notebook or here, can keep the file open for as long as it likes, and nobody
waits for it. A query looks for what differs between the file and the store (`tasks.store.indexing`), and is
answered

    as it is              nothing differs
    after an update       otherwise: the file is replaced first
    from a copy           where that cannot be done now, since the store is busy or may only be read

A file that is missing, not a database, corrupt, or of another version is made again, with a message. If
another program has opened it for writing, it is read from a copy, and the other program's changes are lost
with it. Anything else is reported as it is.
"""

import errno
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from filelock import FileLock, Timeout

from tokmill.tasks.core.database import is_database, require_duckdb, scratch_database
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.extra_tables import stale_tables, sync_extra_tables
from tokmill.tasks.store.indexing import Report, find_difference, num_indexed, read_files, sync_files
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.tables import BrokenCatalogError, check_tables, check_version, make_tables
from tokmill.tasks.store.workspace import workspace

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

_POLL_SECONDS = 0.02
_MOMENT_SECONDS = 1.0
_MOMENTS_PER_WRITE = 20  # publications may take a twentieth of the time for the catalog, however large it is
_WRITE_SECONDS: dict[Path, float] = {}  # duration of this process's last write of each catalog
_TAKEN: Final = ("Could not set lock", "already attached")
_LACKS: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
_BROKEN: Final = (
    "Corrupt database",
    "not a valid DuckDB database",
    "version number",
    "Could not read enough",
)


class Snapshot:
    """The catalog's file of one store.

    Args:
        layout: the store.
        wait_seconds: how long `sync` and `rebuild` wait for other processes before that is an error.
        question_wait_seconds: how long a query waits before it updates a copy of its own instead.
        report: receives one-line messages for people: a rebuild, a file that cannot be read.
    """

    def __init__(
        self, layout: Layout, *, wait_seconds: float, question_wait_seconds: float, report: Report
    ) -> None:
        self._layout = layout
        self._path = layout.catalog
        self._wait = wait_seconds
        self._question_wait = question_wait_seconds
        self._say = report

    def answered(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query the catalog as it is now; a broken one is made again."""
        try:
            return self._ask(ask)
        except BrokenCatalogError as error:
            self._say_broken(error)
        try:
            self.rebuild()
        except StoreError:  # busy, or not writable
            return self._ask_copy(ask, anew=True)
        return self.as_written(ask)

    def as_written(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query the catalog as somebody last wrote it."""
        with reading(self._path) as connection:
            return ask(connection)

    def sync(self) -> None:
        """Add the rows of new and changed files, and drop those of files that no longer exist."""
        self.replace(self._wait, lambda connection: self._sync(connection, thorough=True))

    def rebuild(self) -> None:
        """Make the catalog again from the store's files."""
        with locked(self._layout.catalog_lock, self._wait), self._replacing(anew=True) as connection:
            self.take_in(connection)

    def was_just_written(self) -> bool:
        """Whether the file is so new that writing it again would take too large a share of the time."""
        try:
            age = time.time() - self._path.stat().st_mtime
        except FileNotFoundError:
            age = math.inf
        last = _WRITE_SECONDS.get(self._path, 0.0)
        return 0 <= age < max(_MOMENT_SECONDS, _MOMENTS_PER_WRITE * last)

    def replace(self, wait: float, work: Callable[["DuckDBPyConnection"], T]) -> T:
        """Do `work` on a copy that then replaces the file; a broken catalog is made again first."""
        with locked(self._layout.catalog_lock, wait):
            began = time.monotonic()
            try:
                with self._replacing(anew=not self._path.exists()) as connection:
                    done = work(connection)
                _WRITE_SECONDS[self._path] = time.monotonic() - began
                return done  # noqa: TRY300 - what fails is made good below
            except BrokenCatalogError as error:
                self._say_broken(error)
            with self._replacing(anew=True) as connection:
                self.take_in(connection)
                return work(connection)

    def take_in(self, connection: "DuckDBPyConnection", *, thorough: bool = False) -> None:
        """Update the rows of a copy of the file from all that is new in the store."""
        sync_files(connection, self._layout, self._say, thorough=thorough)
        sync_extra_tables(connection, self._layout, self._say)

    def _sync(self, connection: "DuckDBPyConnection", *, thorough: bool = False) -> None:
        was_empty = num_indexed(connection) == 0
        self.take_in(connection, thorough=thorough)
        if was_empty and (num_files := num_indexed(connection)):
            self._say(f"catalog {self._path} was empty; it is made again from {num_files} files of the store")

    def _ask(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        if self._path.exists():
            with reading(self._path) as connection:
                if self._is_in_step(connection):
                    return ask(connection)
        else:
            with private(self._layout.root) as connection:
                if not find_difference(connection, self._layout, adopt=False):
                    return ask(connection)  # a query must not create a store
        try:
            self.replace(self._question_wait, self._sync)
        except BrokenCatalogError:
            raise
        except StoreError:  # busy, or not writable
            return self._ask_copy(ask, anew=not self._path.exists())
        return self.as_written(ask)

    def _is_in_step(self, connection: "DuckDBPyConnection") -> bool:
        """Whether an update would change nothing; files that cannot be read are reported."""
        difference = find_difference(connection, self._layout)
        if difference.stale or len(difference) > _FEW_FILES:
            return False
        unread = list[str]()
        if read_files(self._layout, difference.changed, unread.append)["catalog_files"]:
            return False
        for line in unread:
            self._say(line)
        return not stale_tables(connection, self._layout)

    def _ask_copy(self, ask: Callable[["DuckDBPyConnection"], T], *, anew: bool) -> T:
        """Query a copy of the file, after an update; it is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="tokmill-catalog-") as folder:  # the store may be read-only
            copy = Path(folder) / self._path.name
            if not anew:
                _copy(self._path, copy)
            with _opened(copy, self._layout.root, copy.parent) as connection:
                self.take_in(connection)
                return ask(connection)

    @contextmanager
    def _replacing(self, *, anew: bool) -> Iterator["DuckDBPyConnection"]:
        """Yield a connection to a copy of the file, or an empty catalog; it replaces the file afterwards."""
        path = self._path
        with reported_as(f"catalog {path} cannot be written"), workspace(self._layout) as folder:
            copy = folder / path.name
            if not anew:
                _copy(path, copy)
            with _opened(copy, self._layout.root) as connection:
                yield connection
                connection.execute("CHECKPOINT")  # detaching would do this too, but not report a full disk
            path.with_name(path.name + ".wal").unlink(missing_ok=True)  # of a program that wrote in place
            copy.replace(path)

    def _say_broken(self, error: BrokenCatalogError) -> None:
        self._say(f"catalog {self._path} cannot be used ({error}); it is made again from the records")


_FEW_FILES = 1000


@contextmanager
def locked(lock_path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock for replacing the file."""
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
    """Yield a read-only connection to the file."""
    with _in_memory(path.parent) as connection, attached(connection, path):
        check_version(connection)
        yield connection


@contextmanager
def private(root: Path) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to an empty catalog in memory, of a store at `root`."""
    with _in_memory(root) as connection:
        make_tables(connection)
        yield connection


def answer(
    connection: "DuckDBPyConnection", sql: str, parameters: Sequence[Any] | Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a query, one dict per row."""
    with answering(connection):
        found = connection.execute(sql, parameters or None)
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def arrow_answer(
    connection: "DuckDBPyConnection", sql: str, parameters: Sequence[Any] | Mapping[str, Any]
) -> "pa.Table":
    """Return the rows of a query as an Arrow table."""
    with answering(connection):
        table: pa.Table = connection.sql(sql, params=parameters or None).to_arrow_table()
        return table


@contextmanager
def answering(connection: "DuckDBPyConnection") -> Iterator[None]:
    """Let a query of this block change nothing, and translate what DuckDB says against it.

    Raises:
        BrokenCatalogError: a table is missing or lacks a column, or there is a view that is not ours.
        StoreError: DuckDB rejects the query.
    """
    import duckdb

    # by these exceptions, DuckDB blames the query, and not the catalog
    blamed = (
        duckdb.ProgrammingError,
        duckdb.DataError,
        duckdb.NotSupportedError,
        duckdb.TransactionException,
        duckdb.PermissionException,
    )
    connection.execute("BEGIN TRANSACTION READ ONLY")  # a sync would not repair what is changed here
    try:
        yield
    except blamed as error:
        check_tables(connection)
        rule = "a query reads the catalog, no other file: " if "file system" in str(error) else ""
        raise StoreError(f"DuckDB rejects the query: {rule}{error}") from error
    finally:
        with suppress(duckdb.TransactionException):  # a query may have ended it
            connection.execute("ROLLBACK")


@contextmanager
def attached(connection: "DuckDBPyConnection", path: Path) -> Iterator[None]:
    """Attach the file as the database `snapshot`, and make it the default of statements.

    It is attached to a database in memory, since DuckDB keeps one instance per path that a process connects
    to, and would return the one that a notebook holds of an older file.
    """
    import duckdb

    _check_kind(path)
    with ExitStack() as stack:
        try:
            _attach(connection, path, "(READ_ONLY, TYPE DUCKDB)")
        except (duckdb.OperationalError, duckdb.BinderException) as error:  # DuckDB 1.4.0 raises the latter
            if not any(sign in str(error) for sign in _TAKEN):
                raise
            copy = stack.enter_context(workspace(Layout(path.parent))) / path.name
            _copy(path, copy)
            _attach(connection, copy, "(READ_ONLY, TYPE DUCKDB)")
        with _in_use(connection, "system.main,snapshot.main"):  # no macro of the file hides a function
            yield


@contextmanager
def _opened(copy: Path, *within: Path) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to a file that is written, and made if it is not there."""
    with _in_memory(*within) as connection:
        _attach(connection, copy, "(TYPE DUCKDB)")
        with _in_use(connection, "snapshot.main"):
            if not check_version(connection, empty=True):
                make_tables(connection)
            yield connection


@contextmanager
def _in_use(connection: "DuckDBPyConnection", search_path: str) -> Iterator[None]:
    """Make the database `snapshot` the default of statements; it is detached unless the block fails."""
    connection.execute(f"SET search_path = '{search_path}'")
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
def _in_memory(*within: Path) -> Iterator["DuckDBPyConnection"]:
    with _translated(within[0]), scratch_database(*within) as connection:
        yield connection


@contextmanager
def _translated(root: Path) -> Iterator[None]:
    """Raise DuckDB's errors of the block as StoreError."""
    require_duckdb()
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if _is_broken(error):
            raise BrokenCatalogError(str(error)) from error
        raise StoreError(f"the catalog of {root}: {error}") from error


def _is_broken(error: Exception) -> bool:
    """Whether our own statements failed because of the file, not for lack of space, memory or permission."""
    import duckdb

    if any(lack in str(error) for lack in _LACKS):  # DuckDB reports a full disk as a fatal error, too
        return False
    if isinstance(error, duckdb.OperationalError) and not isinstance(error, duckdb.SerializationException):
        return any(sign in str(error) for sign in _BROKEN)
    return True
