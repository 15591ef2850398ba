"""Update the catalog's rows from files that are new, changed or deleted, found by their times and sizes.

A store has parts: a folder of artifacts for each kind, the labels of each kind, aliases, runs, tombstones of
each kind. The files of a part are listed only if its folder has another time than before, so a hundred
thousand artifacts to which nothing was added cost a few dozen looks. A time of the last moments before a look
is not trusted, since the folder may change again within the same tick of the clock. Labels lie in a folder
for each name: whoever gives one out gives the folder of its kind a new time first, unless an artifact is
published next; if the process is killed before, the sweep of its temporary folder does it.
"""

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import (
    ALIASES,
    LABELS,
    RECORD_FILE,
    REMOVED,
    Layout,
    is_prefix,
    part_of,
    printable,
)
from tokmill.tasks.store.names import is_kind
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.rows import Rows, rows_of
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, TABLES, TREES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Stamps: TypeAlias = dict[str, tuple[int, int]]
"""Modification time in nanoseconds and size in bytes of each file, by posix path below the store."""

_UNSURE: Final = -1  # the time of a part that has to be looked over every time
_TICK_NS: Final = 2_000_000_000  # the coarsest clock of a file system that is in use
_BATCH: Final = 4096
_FEW_ROWS: Final = 128
_PARTS: Final = f"""
    SELECT part, CASE WHEN part IN (SELECT part FROM catalog_files WHERE problem IS NOT NULL)
                      THEN {_UNSURE} ELSE time END
    FROM catalog_parts
"""  # noqa: S608 - a constant


class Changes(NamedTuple):
    """What differs between a catalog and the store's files."""

    files: Stamps  # of files that are new or have changed
    stale: Sequence[str]  # paths of files whose rows in the catalog no longer count
    times: Mapping[str, int]  # of the store's parts
    looked: float  # when that was so, by the monotonic clock

    @property
    def any(self) -> bool:
        """Whether there is a difference."""
        return bool(self.files or self.stale)


def find_changes(connection: "DuckDBPyConnection", layout: Layout, *, adopt: bool = True) -> Changes:
    """Return what differs between the catalog and the store's files; nothing but new records is read.

    With `adopt`, an artifact without a label here gets the one in its record.
    """
    looked, times = time.monotonic(), _part_times(layout)
    before = dict(connection.execute(_PARTS).fetchall())
    parts = {part for part, moment in times.items() if moment == _UNSURE or before.get(part) != moment}
    parts |= before.keys() - times.keys()
    seen: Stamps = {}
    for part in sorted(parts):
        paths = list(paths_in(layout, part))
        stamps = _stamps(layout, paths)
        if is_kind(part) and len(stamps) < len(paths):  # a folder that is being copied gets its record later
            times[part] = _UNSURE
        seen |= stamps
    known = _known(connection, "part", sorted(parts))
    # an artifact that was lost and made again has its record at the same path, and maybe a new label
    new = [path for path, stamp in seen.items() if known.get(path) != stamp]
    seen |= _labels_of(layout, [path for path in new if path.endswith(f"/{RECORD_FILE}")], adopt=adopt)
    known |= _known(connection, "path", [path for path in seen if path not in known])
    changed = {path: stamp for path, stamp in seen.items() if known.get(path) != stamp}
    return Changes(changed, [path for path in known if path not in seen or path in changed], times, looked)


def _part_times(layout: Layout) -> dict[str, int]:
    folders = [*layout.kinds(), layout.runs.name, layout.annotations.name]
    for tree in (LABELS, REMOVED):
        folders += [f"{tree}/{entry.name}" for entry in disk.entries(layout.root / tree) if entry.is_dir()]
    times = {ALIASES: _UNSURE}
    for part in folders:
        with suppress(OSError):
            state = disk.state(layout.root / part)
            times |= {part: state.mtime_ns} if state.kind == "folder" else {}
    return times


def paths_in(layout: Layout, part: str) -> Iterator[str]:
    """Yield the paths of the files of a part, as far as the store writes such names."""
    tree = part.partition("/")[0]
    if tree in (LABELS, ALIASES):
        yield from _named(layout.root / part, part)
        return
    for entry in disk.entries(layout.root / part):
        if is_kind(tree):
            if is_prefix(entry.name):
                yield f"{part}/{entry.name}/{RECORD_FILE}"
        elif entry.name.endswith(".json") and entry.name[0] != ".":
            yield f"{part}/{entry.name}"


def _named(folder: Path | str, relative: str) -> Iterator[str]:
    for entry in disk.entries(folder):
        if entry.name.startswith("@"):
            yield f"{relative}/{entry.name}"
        elif entry.is_dir():
            yield from _named(entry.path, f"{relative}/{entry.name}")


def _stamps(layout: Layout, paths: Iterable[str]) -> Stamps:
    """Stamp files before they are read, so that a later change is noticed; the store's names are ASCII."""
    root, stamps = str(layout.root), {}
    for path in filter(str.isascii, paths):
        with suppress(OSError):  # it does not exist, or may not be read
            state = disk.state(f"{root}/{path}")  # a file that became a link counts as another
            stamps[path] = (state.mtime_ns, state.num_bytes)
    return stamps


def _known(connection: "DuckDBPyConnection", column: str, values: Sequence[str]) -> Stamps:
    if not values:
        return {}
    wanted = f"SELECT path, mtime_ns, size FROM catalog_files WHERE {column} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608
    return {path: (moment, size) for path, moment, size in connection.execute(wanted, [values]).fetchall()}


def _labels_of(layout: Layout, records: Sequence[str], *, adopt: bool) -> Stamps:
    """Return the stamps of the labels of artifacts that are new to the catalog, or were made again."""
    names = Names(layout)
    owners: dict[tuple[str, str], set[str]] = {}
    for path in records:
        with suppress(StoreError, MachineError):  # reported when its rows are read
            record = read_record((layout.root / path).parent)
            name = record.kind, record.name
            if name not in owners:
                owners[name] = set(names.labels(*name).values())
            if adopt and record.fingerprint not in owners[name]:
                names.adopt(*name, record.label, record.fingerprint)
    folders = (f"{LABELS}/{kind}/{name}" for kind, name in owners)
    files = ((folder, entry.name) for folder in folders for entry in disk.entries(layout.root / folder))
    return _stamps(layout, (f"{folder}/{name}" for folder, name in files if name.startswith("@")))


def apply_changes(connection: "DuckDBPyConnection", layout: Layout, changes: Changes) -> None:
    """Replace the rows of what differs, in one transaction."""
    if not changes.any:
        return
    connection.execute("BEGIN")
    _delete(connection, changes.stale)
    remaining = iter(sorted(changes.files))
    while batch := list(islice(remaining, _BATCH)):  # so that memory does not grow with the store
        for name, rows in _read_files(layout, {path: changes.files[path] for path in batch}).items():
            insert(connection, name, rows)
    since_ns = int((time.monotonic() - changes.looked) * 1e9) + _TICK_NS
    sure_ns = shared.local_now_ns(layout.root) - since_ns  # by the file system's clock
    times = {part: moment if moment < sure_ns else _UNSURE for part, moment in changes.times.items()}
    connection.execute("DELETE FROM catalog_parts")
    insert(connection, "catalog_parts", [{"part": part, "time": times[part]} for part in sorted(times)])
    connection.execute("COMMIT")


def _read_files(layout: Layout, stamps: Stamps) -> Rows:
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    for path, (moment, size) in stamps.items():
        row = {"path": path, "part": part_of(path), "mtime_ns": moment, "size": size}
        try:
            row["key"], of_file = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            row["problem"], of_file = printable(str(error)), {}
            if _is_of_machine(error):  # which says nothing about the file: it is read again
                row["size"] = -1
        rows["catalog_files"].append(row)
        for name, more in of_file.items():
            rows[name].extend(more)
    return rows


def _is_of_machine(error: StoreError | MachineError) -> bool:
    cause = error.__cause__
    return isinstance(error, MachineError) or (isinstance(cause, OSError) and cause.errno != errno.EINVAL)


def _delete(connection: "DuckDBPyConnection", paths: Sequence[str]) -> None:
    """Delete the rows of these files; keys of different tables never coincide."""
    # The names in these statements are constants of the package; what varies is a parameter.
    known, named = "FROM catalog_files WHERE path IN (SELECT unnest($paths::VARCHAR[]))", {"paths": paths}
    files = connection.execute(f"SELECT key, split_part(path, '/', 1) {known}", named).fetchall()
    keys: dict[str, list[str]] = {tree: [] for tree in TREES.values()}
    for key, tree in files:
        if key:
            keys[tree if tree in keys else ""].append(key)
    for name, column in KEYS.items():
        if stale := keys[TREES[name]]:
            rows = f"DELETE FROM {name} WHERE {column} IN (SELECT unnest($keys::VARCHAR[]))"  # noqa: S608
            connection.execute(rows, {"keys": stale})
    if files:
        connection.execute(f"DELETE {known}", named)


def insert(connection: "DuckDBPyConnection", table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, given as column → value, into a table; what has no column is left out."""
    columns = ALL_TABLES[table]
    if 0 < len(rows) <= _FEW_ROWS:
        lists = ", ".join(f"unnest(?::{sql_type}[])" for sql_type in columns.values())
        values = [[row.get(column) for row in rows] for column in columns]
        connection.execute(f"INSERT INTO {table} SELECT {lists}", values)
    elif rows:  # as one Arrow table, which costs a few rows more and many less
        import pyarrow as pa

        types = {
            **{"VARCHAR": pa.string(), "TIMESTAMP": pa.string(), "INTEGER": pa.int32(), "BIGINT": pa.int64()},
            **{"UBIGINT": pa.uint64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()},
        }
        schema = pa.schema([(column, types[sql_type]) for column, sql_type in columns.items()])
        connection.register("new_rows", pa.Table.from_pylist(rows, schema=schema))
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")  # noqa: S608
        connection.unregister("new_rows")
