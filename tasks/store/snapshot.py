"""The catalog's file: one DuckDB database that is never written in place.

A writer renames a changed copy to the file's name, holding a lock that only writers take; so readers neither
wait nor are waited for. A file that another program has opened for writing is read from a copy.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tokmill.tasks.core.database import require_duckdb, scratch_database
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import Layout, workspace
from tokmill.tasks.store.tables import VERSION, BrokenCatalogError, lacks_room, make_tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_CHARS: Final = 1 << 20
"""The most characters of a query."""
_MOST_OPEN: Final = 200  # the parser's time grows with the square of what is open, and not closed
_NESTING: Final = re.compile(r"""'[^']*'|"[^"]*"|--.*|/\*.*?\*/|[(\[{]|[)\]}]""")
Row: TypeAlias = dict[str, Any]
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
Ask: TypeAlias = Callable[..., list[Row]]
"""Answers queries (SQL, and maybe parameters) from a catalog that is open; see `Catalog.query`."""

_TAKEN: Final = ("Could not set lock", "already attached")


class Answer(NamedTuple):
    """The result of a query: the names of its columns, and its rows, in its order."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


@contextmanager
def reading(path: Path) -> Iterator["DuckDBPyConnection"]:
    """Yield a read-only connection to the file.

    It is attached to a database in memory: a process that connects to a path again would get the instance
    that a notebook holds of an older file.
    """
    import duckdb

    with _in_memory(path.parent) as connection, ExitStack() as stack:
        try:
            _attach(connection, path, "(READ_ONLY, TYPE DUCKDB)")
        except (duckdb.OperationalError, duckdb.BinderException) as error:  # DuckDB 1.4.0 raises the latter
            if not any(sign in str(error) for sign in _TAKEN):
                raise
            copy = stack.enter_context(workspace(Layout(path.parent))) / path.name
            _copy(path, copy)
            _attach(connection, copy, "(READ_ONLY, TYPE DUCKDB)")
        with _in_use(connection, "system.main,snapshot.main"):  # no macro of the file hides a function
            _check_version(connection)
            yield connection


@contextmanager
def replacing(layout: Layout, *, anew: bool) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to a copy of the file, or to an empty catalog; it replaces the file afterwards."""
    path = layout.catalog
    with reported_as(f"catalog {path} cannot be written"), workspace(layout) as folder:
        copy = folder / path.name
        with _written(copy, None if anew else path, layout.root) as connection:
            yield connection
            connection.execute("CHECKPOINT")  # detaching would do this too, but not report a full disk
        path.with_name(path.name + ".wal").unlink(missing_ok=True)  # of a program that wrote in place
        copy.replace(path)


@contextmanager
def copied(layout: Layout, *, anew: bool) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to a copy of the file, or to an empty catalog, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tokmill-catalog-") as folder:  # the store may be read-only
        copy = Path(folder) / layout.catalog.name
        with _written(copy, None if anew else layout.catalog, layout.root, copy.parent) as connection:
            yield connection


@contextmanager
def answering(connection: "DuckDBPyConnection") -> Iterator[None]:
    """Let a query of this block change nothing, and raise what DuckDB says against it as StoreError."""
    import duckdb

    # by these exceptions, DuckDB blames the query, and not the catalog
    blamed = (
        *(duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError),
        *(duckdb.TransactionException, duckdb.PermissionException),
    )
    connection.execute("BEGIN TRANSACTION READ ONLY")  # an update would not repair what is changed here
    try:
        yield
    except blamed as error:
        rule = "a query reads the catalog, no other file: " if "file system" in str(error) else ""
        raise StoreError(f"DuckDB rejects the query: {rule}{error}") from error
    finally:
        with suppress(duckdb.TransactionException):  # a query may have ended it
            connection.execute("ROLLBACK")


def answer(connection: "DuckDBPyConnection", sql: str, parameters: Parameters = ()) -> Answer:
    """Return the result of a query."""
    with answering(connection):
        result = connection.execute(sql, parameters or None)
        return Answer([column[0] for column in result.description or ()], result.fetchall())


def check_question(sql: str) -> None:
    """Refuse SQL that is not one statement that reads, or is long or deeply nested."""
    steps = ((found in "([{") - (found in ")]}") for found in _NESTING.findall(sql[: MOST_CHARS + 1]))
    if len(sql) > MOST_CHARS or max(accumulate(steps), default=0) > _MOST_OPEN:
        raise StoreError(
            f"sql: a query has at most {MOST_CHARS:,} characters, and brackets {_MOST_OPEN} deep; shorten it"
        )
    require_duckdb()
    import duckdb

    try:
        kinds = [statement.type.name for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as error:
        raise StoreError(f"sql: {error}") from error
    if len(kinds) != 1:
        raise StoreError(f"sql: {len(kinds)} statements were given; give one SELECT")
    if kinds != ["SELECT"]:
        raise StoreError(
            f"sql: {kinds[0]} is refused, since the catalog is made from the records and only read; use "
            "SELECT, FROM, DESCRIBE, SUMMARIZE or SHOW TABLES"
        )


@contextmanager
def _written(copy: Path, original: Path | None, *within: Path) -> Iterator["DuckDBPyConnection"]:
    if original:
        _copy(original, copy)
    with _in_memory(*within) as connection:
        _attach(connection, copy, "(TYPE DUCKDB)")
        with _in_use(connection, "snapshot.main"):
            if original is None:
                make_tables(connection)
            else:
                _check_version(connection)
            yield connection


@contextmanager
def _in_use(connection: "DuckDBPyConnection", search_path: str) -> Iterator[None]:
    """Make the database `snapshot` the default of statements; it is detached unless the block fails."""
    connection.execute(f"SET search_path = '{search_path}'")
    yield
    connection.execute("USE scratch")
    connection.execute("DETACH snapshot")


def _attach(connection: "DuckDBPyConnection", path: Path, options: str) -> None:
    if path.exists() and not path.is_file():  # DuckDB would wait for a FIFO
        raise BrokenCatalogError("it is not a file")
    connection.execute("ATTACH '{}' AS snapshot {}".format(str(path).replace("'", "''"), options))


def _copy(path: Path, copy: Path) -> None:
    with reported_as(f"catalog {path} cannot be copied"), disk.opened(path) as source, copy.open("xb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def _check_version(connection: "DuckDBPyConnection") -> None:
    import duckdb

    with suppress(duckdb.CatalogException):
        if connection.execute("SELECT version FROM catalog_version").fetchall() == [(VERSION,)]:
            return
    raise BrokenCatalogError("it is of another version, or has other tables")


@contextmanager
def _in_memory(*within: Path) -> Iterator["DuckDBPyConnection"]:
    """Yield a connection to an empty database; DuckDB's errors of the block are raised as StoreError."""
    require_duckdb()
    import duckdb

    try:
        with scratch_database(*within) as connection:
            yield connection
    except duckdb.Error as error:  # of our own statements: of the file, unless the machine lacks something
        if lacks_room(error):  # DuckDB reports a full disk as a fatal error, too
            raise StoreError(f"the catalog of {within[0]}: {error}") from error
        raise BrokenCatalogError(str(error)) from error
