"""Update the catalog's rows from files that are new, changed or deleted.

The table `catalog_files` holds, for each file with rows, its path below the store, its modification time and
size, and the key of its rows. When a file changes, its rows are deleted and inserted again in one
transaction, so rows are neither doubled nor lost. A file that cannot be read has no rows; it is reported, and
tried again every time.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.migrating import ALL_TABLES, check_version, make_tables
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.stamps import Stamps, name_and_run_stamps, record_stamps, stamps_of
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.tables import KEYS, TABLES, Rows, rows_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Report: TypeAlias = Callable[[str], None]
"""Receives a one-line message for people."""


@dataclass(frozen=True)
class Changes:
    """The differences between a catalog and the store's files: new rows, and files with stale rows."""

    rows: Rows
    stale: list[str]

    def __bool__(self) -> bool:
        return bool(self.stale or self.rows["catalog_files"])


def prepare(connection: "DuckDBPyConnection") -> None:
    """Make the tables in an empty database.

    Raises:
        BrokenCatalogError: the database holds something else, or tables of an earlier version.
        NewerCatalogError: it holds tables of a newer version.
    """
    if not check_version(connection, empty=True):
        make_tables(connection)


def find_changes(
    connection: "DuckDBPyConnection", layout: Layout, say: Report, *, adopt: bool = True
) -> Changes:
    """Return the differences between the catalog and the store's files; unchanged files are not read.

    Args:
        connection: of the catalog.
        layout: the store.
        say: receives a line about each file that cannot be read.
        adopt: give an artifact from another store the label in its record.
    """
    known = {path: (mtime, size) for path, mtime, size in _known(connection)}
    seen = record_stamps(layout)
    if adopt:
        _adopt_labels(layout, [path for path in seen if path not in known])
    seen |= name_and_run_stamps(layout)
    changed = {path: stamp for path, stamp in seen.items() if known.get(path) != stamp}
    gone = [path for path in known if path not in seen]
    return _read(layout, changed, gone, known, say)


def sync_files(connection: "DuckDBPyConnection", layout: Layout, say: Report, *, adopt: bool = True) -> None:
    """Update the rows of all files of the store; see `find_changes`."""
    apply_changes(connection, find_changes(connection, layout, say, adopt=adopt))


def num_indexed(connection: "DuckDBPyConnection") -> int:
    """Return how many files have rows in the catalog."""
    (found,) = connection.execute("SELECT count(*) FROM catalog_files").fetchall()
    return int(found[0])


def update_files(
    connection: "DuckDBPyConnection", layout: Layout, paths: Sequence[Path], say: Report
) -> None:
    """Update the rows of these files, whether or not they seem to have changed."""
    seen = stamps_of(layout, paths)
    asked = [path.relative_to(layout.root).as_posix() for path in paths]
    gone = [path for path in asked if path not in seen]
    apply_changes(connection, _read(layout, seen, gone, asked, say))


def _adopt_labels(layout: Layout, records: Sequence[str]) -> None:
    """Give every artifact that is new to the catalog the label in its record, if it has none here."""
    STORAGE.prefetch([layout.root / path for path in records])
    for path in records:
        with suppress(StoreError, MachineError):  # reported when its rows are read
            record = read_record((layout.root / path).parent)
            Names(layout).adopt(record.kind, record.name, record.label, record.fingerprint)


def _read(
    layout: Layout, changed: Stamps, gone: Sequence[str], known: Collection[str], say: Report
) -> Changes:
    """Read the changed files; one that cannot be read has no rows, and is reported."""
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    STORAGE.prefetch([layout.root / path for path in changed])
    for path, (mtime, size) in sorted(changed.items()):
        try:
            key, given = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            say(f"the catalog leaves out {path}: {error}")
            continue
        rows["catalog_files"].append({"path": path, "mtime_ns": mtime, "size": size, "key": key})
        for name, more in given.items():
            rows[name].extend(more)
    return Changes(rows, [path for path in (*changed, *gone) if path in known])


def apply_changes(connection: "DuckDBPyConnection", changes: Changes) -> None:
    """Replace the rows of changed files."""
    if not changes:
        return
    connection.execute("BEGIN")
    _delete(connection, changes.stale)
    for name, new in changes.rows.items():
        insert(connection, name, ALL_TABLES[name], new)
    connection.execute("COMMIT")


def _delete(connection: "DuckDBPyConnection", paths: list[str]) -> None:
    """Delete the rows of these files; keys of different tables never coincide."""
    # The names in these statements are constants of the package; what varies is a parameter.
    known = "FROM catalog_files WHERE path IN (SELECT unnest($paths::VARCHAR[]))"
    keys = connection.execute(f"SELECT key {known}", {"paths": paths}).fetchall()
    if not keys:  # nothing but new files, as after a publication
        return
    for name, key in KEYS.items():
        stale = f"DELETE FROM {name} WHERE {key} IN (SELECT unnest($keys::VARCHAR[]))"  # noqa: S608
        connection.execute(stale, {"keys": [key for (key,) in keys]})
    connection.execute(f"DELETE {known}", {"paths": paths})


def insert(
    connection: "DuckDBPyConnection", name: str, columns: dict[str, str], rows: list[dict[str, object]]
) -> None:
    """Insert rows, given as column → value, into a table; all at once, as an Arrow table."""
    if not rows:
        return
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "TIMESTAMP": pa.string(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
    }
    schema = pa.schema([(column, types[sql_type]) for column, sql_type in columns.items()])
    connection.register("new_rows", pa.Table.from_pylist(rows, schema=schema))
    connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM new_rows")  # noqa: S608
    connection.unregister("new_rows")


def _known(connection: "DuckDBPyConnection") -> list[tuple[str, int, int]]:
    return connection.execute("SELECT path, mtime_ns, size FROM catalog_files").fetchall()
