"""Update the catalog's rows from files that are new, changed or deleted.

The table `catalog_files` holds, for each file with rows, its path below the store, its modification time and
size, and the key of its rows. When a file changes, its rows are deleted and inserted again in one
transaction, so rows are neither doubled nor lost. A file that cannot be read has no rows; it is reported, and
tried again every time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store.catalog_schema import ALL_TABLES, check_version, make_tables
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import RECORD_FILE, Layout, printable
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.stamps import (
    PART_OF,
    UNSURE,
    Stamps,
    label_stamps,
    look_over,
    part_of,
    stamps_of,
    sure_times,
)
from tokmill.tasks.store.tables import KEYS, TABLES, TREES, Rows, rows_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Report: TypeAlias = Callable[[str], None]
"""Receives a one-line message for people."""

_BATCH: Final = 4096
_FEW_PARTS: Final = 8
_FEW_ROWS: Final = 128


@dataclass(frozen=True)
class Difference:
    """What differs between a catalog and the store's files.

    Attributes:
        changed: the stamps of files that are new or have changed.
        stale: paths of files whose rows in the catalog no longer count.
        times: of the store's parts; see `tasks.store.stamps`.
    """

    changed: Stamps
    stale: Sequence[str]
    times: Mapping[str, int] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        """Whether the catalog has rows of a file that the store no longer has."""
        return not self.changed.keys() >= {*self.stale}

    def __len__(self) -> int:
        """The number of files that differ."""
        return len(self.changed.keys() | {*self.stale})


class Read(NamedTuple):
    """The rows of files, by table, and the paths of files that cannot be read."""

    rows: Rows
    unreadable: Sequence[str] = ()


def prepare(connection: "DuckDBPyConnection", *, lineage: bool = True) -> None:
    """Make the tables in an empty database, and the views of lineage.

    Raises:
        BrokenCatalogError: the database holds something else, or tables of an earlier version.
        NewerCatalogError: it holds tables of a newer version.
    """
    if not check_version(connection, empty=True):
        make_tables(connection, lineage=lineage)


def find_difference(
    connection: "DuckDBPyConnection", layout: Layout, *, adopt: bool = True, thorough: bool = False
) -> Difference:
    """Return what differs between the catalog and the store's files; nothing but new records is read.

    Args:
        connection: of the catalog.
        layout: the store.
        adopt: give an artifact from another store the label in its record.
        thorough: look over every part of the store, also where nothing seems to have changed.
    """
    times = {} if thorough else dict(connection.execute("SELECT part, time FROM catalog_parts").fetchall())
    look = look_over(layout, times)
    known, seen = _known(connection, sorted(look.parts)), look.stamps
    # an artifact that was lost and made again has its record at the same path, and maybe a new label
    new = [path for path, stamp in seen.items() if known.get(path) != stamp]
    records = [path for path in new if path.endswith(f"/{RECORD_FILE}")]
    seen |= _labels_of(layout, records, adopt=adopt)
    known |= _known_files(connection, [path for path in seen if path not in known])
    changed = {path: stamp for path, stamp in seen.items() if known.get(path) != stamp}
    return Difference(changed, [path for path in known if path not in seen or path in changed], look.times)


def sync_files(
    connection: "DuckDBPyConnection",
    layout: Layout,
    say: Report,
    *,
    adopt: bool = True,
    thorough: bool = False,
) -> None:
    """Update the rows of all files of the store; see `find_difference`."""
    difference = find_difference(connection, layout, adopt=adopt, thorough=thorough)
    unreadable = apply_difference(connection, layout, difference, say)
    if adopt and (difference or thorough):
        times = {**difference.times, **{part_of(path): UNSURE for path in unreadable}}
        _note_times(connection, sure_times(layout, times))


def _note_times(connection: "DuckDBPyConnection", times: Mapping[str, int]) -> None:
    connection.execute("BEGIN")
    connection.execute("DELETE FROM catalog_parts")
    rows: list[dict[str, object]] = [{"part": part, "time": time} for part, time in sorted(times.items())]
    insert(connection, "catalog_parts", rows)
    connection.execute("COMMIT")


def num_indexed(connection: "DuckDBPyConnection") -> int:
    """Return how many files have rows in the catalog."""
    (found,) = connection.execute("SELECT count(*) FROM catalog_files").fetchall()
    return int(found[0])


def update_files(
    connection: "DuckDBPyConnection", layout: Layout, paths: Sequence[Path], say: Report
) -> None:
    """Update the rows of these files, whether or not they seem to have changed."""
    asked = [path.relative_to(layout.root).as_posix() for path in paths]
    apply_difference(connection, layout, Difference(stamps_of(layout, paths), asked), say)


def _labels_of(layout: Layout, records: Sequence[str], *, adopt: bool) -> Stamps:
    """Return the stamps of the labels of artifacts that are new to the catalog, or were made again.

    Args:
        layout: the store.
        records: paths of their records.
        adopt: give each the label in its record, if it has none here.
    """
    stamps: Stamps = {}
    for path in records:
        with suppress(StoreError, MachineError):  # reported when its rows are read
            record = read_record((layout.root / path).parent)
            if adopt:
                Names(layout).adopt(record.kind, record.name, record.label, record.fingerprint)
            stamps |= label_stamps(layout, record.kind, record.name)
    return stamps


def read_files(layout: Layout, stamps: Stamps, say: Report) -> Read:
    """Read files of the store; one that cannot be read has no rows, and is reported every time."""
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    unreadable = []
    for path, (mtime, size) in stamps.items():
        try:
            key, given = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            say(f"the catalog leaves out {printable(path)}: {error}")
            unreadable.append(path)
            continue
        rows["catalog_files"].append({"path": path, "mtime_ns": mtime, "size": size, "key": key})
        for name, more in given.items():
            rows[name].extend(more)
    return Read(rows, unreadable)


def apply_difference(
    connection: "DuckDBPyConnection", layout: Layout, difference: Difference, say: Report
) -> list[str]:
    """Replace the rows of what differs; return the paths of files that cannot be read.

    A batch of files at a time, so that memory does not grow with the store; in one transaction.
    """
    if not difference:
        return []
    unreadable: list[str] = []
    connection.execute("BEGIN")
    _delete(connection, difference.stale)
    for batch in _batches(sorted(difference.changed)):
        read = read_files(layout, {path: difference.changed[path] for path in batch}, say)
        unreadable += read.unreadable
        for name, rows in read.rows.items():
            insert(connection, name, rows)
    connection.execute("COMMIT")
    return unreadable


def _delete(connection: "DuckDBPyConnection", paths: Sequence[str]) -> None:
    """Delete the rows of these files; keys of different tables never coincide."""
    # The names in these statements are constants of the package; what varies is a parameter.
    known = "FROM catalog_files WHERE path IN (SELECT unnest($paths::VARCHAR[]))"
    found = connection.execute(
        f"SELECT key, split_part(path, '/', 1) {known}", {"paths": list(paths)}
    ).fetchall()
    if not found:  # nothing but new files, as after a publication
        return
    keys: dict[str, list[str]] = {tree: [] for tree in TREES.values()}
    for owner, tree in found:
        keys[tree if tree in keys else ""].append(owner)
    for name, key in KEYS.items():
        if of_tree := keys[TREES[name]]:
            stale = f"DELETE FROM {name} WHERE {key} IN (SELECT unnest($keys::VARCHAR[]))"  # noqa: S608
            connection.execute(stale, {"keys": of_tree})
    connection.execute(f"DELETE {known}", {"paths": list(paths)})


def insert(
    connection: "DuckDBPyConnection", name: str, rows: Sequence[Mapping[str, object]], schema: str = ""
) -> None:
    """Insert rows, given as column → value, into a table, maybe of a schema (`x.`)."""
    if not rows:
        return
    columns = ALL_TABLES[name]
    if len(rows) <= _FEW_ROWS:
        lists = ", ".join(f"unnest(?::{sql_type}[])" for sql_type in columns.values())
        given = [[row.get(column) for row in rows] for column in columns]
        connection.execute(f"INSERT INTO {schema}{name} SELECT {lists}", given)
    else:
        _insert_many(connection, schema + name, rows, columns)


def _insert_many(
    connection: "DuckDBPyConnection",
    table: str,
    rows: Sequence[Mapping[str, object]],
    columns: Mapping[str, str],
) -> None:
    """Insert rows as one Arrow table, which costs a few of them more and many less."""
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "TIMESTAMP": pa.string(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "UBIGINT": pa.uint64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
    }
    arrow = pa.schema([(column, types[sql_type]) for column, sql_type in columns.items()])
    connection.register("new_rows", pa.Table.from_pylist(rows, schema=arrow))
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")  # noqa: S608
    connection.unregister("new_rows")


def _known(connection: "DuckDBPyConnection", parts: list[str]) -> Stamps:
    """Return the stamps that the catalog has of the files in some parts of the store."""
    given: Sequence[object] = [parts]
    among = f"list_contains(?, {PART_OF})"
    if 0 < len(parts) <= _FEW_PARTS:  # prefixes are compared much faster than parts are cut out
        given, among = parts, " OR ".join(["starts_with(path, ? || '/')"] * len(parts))
    asked = f"SELECT path, mtime_ns, size FROM catalog_files WHERE {among}"  # noqa: S608 - constants
    return {path: (time, size) for path, time, size in connection.execute(asked, given).fetchall()}


def _known_files(connection: "DuckDBPyConnection", paths: list[str]) -> Stamps:
    asked = "SELECT path, mtime_ns, size FROM catalog_files WHERE path IN (SELECT unnest(?::VARCHAR[]))"
    named = [path for path in paths if _is_text(path)]  # the catalog has no others
    if not named:
        return {}
    return {path: (time, size) for path, time, size in connection.execute(asked, [named]).fetchall()}


def _is_text(path: str) -> bool:
    """Whether a path is UTF-8, as all names are that the store gives."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the paths, some thousands at a time."""
    remaining = iter(paths)
    while batch := list(islice(remaining, _BATCH)):
        yield batch
