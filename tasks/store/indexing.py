"""Update the catalog's rows from files that are new, changed or deleted, found by their times and sizes.

A store has parts: a folder of artifacts for each kind, the labels of each kind, aliases, runs, tombstones of
each kind. The files of a part are listed only if its folder has another time than before, so a hundred
thousand artifacts to which nothing was added cost a few dozen looks. A time of the last moments before a look
is not trusted, since the folder may change again within the same tick of the clock. Labels lie in a folder
for each name: whoever gives one out gives the folder of its kind a new time first, unless an artifact is
published next; if the process is killed before, the sweep of its temporary folder does it. `verify` and a
rebuild read all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout, is_prefix, printable
from tokmill.tasks.store.names import is_kind
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.rows import Rows, rows_of
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, TABLES, TREES, Report

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Stamps: TypeAlias = dict[str, tuple[int, int]]
"""Modification time in nanoseconds and size in bytes of each file, by posix path below the store."""

UNSURE: Final = -1
"""The time of a part that has to be looked over every time."""

_PART: Final = (
    "CASE WHEN split_part(path, '/', 1) IN ('labels', 'removed') "
    "THEN split_part(path, '/', 1) || '/' || split_part(path, '/', 2) ELSE split_part(path, '/', 1) END"
)
_TICK_NS = 2_000_000_000  # the coarsest clock of a file system that is in use
_BATCH: Final = 4096
_FEW_PARTS: Final = 8
_FEW_ROWS: Final = 128


class Difference(NamedTuple):
    """What differs between a catalog and the store's files."""

    changed: Stamps  # the stamps of files that are new or have changed
    stale: Sequence[str]  # paths of files whose rows in the catalog no longer count
    times: Mapping[str, int] = {}  # of the store's parts

    @property
    def paths(self) -> set[str]:
        """The files that differ."""
        return self.changed.keys() | {*self.stale}


class Look(NamedTuple):
    """What a look over some parts of a store found."""

    stamps: Stamps  # of all files in these parts
    parts: frozenset[str]  # whatever of them is not among the stamps is gone
    times: Mapping[str, int]  # of all parts of the store


def look_over(layout: Layout, trusted: Mapping[str, int]) -> Look:
    """Look over the parts of a store whose times differ from those in `trusted`."""
    folders = [*layout.kinds(), layout.runs.name, layout.annotations.name]
    for tree in (LABELS, layout.removed.name):
        folders += [f"{tree}/{entry.name}" for entry in disk.entries(layout.root / tree) if entry.is_dir()]
    times = {ALIASES: UNSURE}
    for part in folders:
        with suppress(OSError):
            state = disk.state(layout.root / part)
            times |= {part: state.mtime_ns} if state.kind == "folder" else {}
    parts = {part for part, time in times.items() if time == UNSURE or trusted.get(part) != time}
    stamps: Stamps = {}
    for part in sorted(parts):
        paths = list(_paths_in(layout, part))
        found = _stamps(layout, paths)
        if is_kind(part) and len(found) < len(paths):  # a folder that is being copied gets its record later
            times[part] = UNSURE
        stamps |= found
    return Look(stamps, frozenset(parts | (trusted.keys() - times.keys())), times)


def _paths_in(layout: Layout, part: str) -> Iterator[str]:
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


def sure_times(layout: Layout, times: Mapping[str, int]) -> dict[str, int]:
    """Return the times, without those that may come twice, because they are of this moment."""
    latest = shared.local_now_ns(layout.root) - _TICK_NS  # by the file system's clock
    return {part: time if time < latest else UNSURE for part, time in times.items()}


def find_difference(
    connection: "DuckDBPyConnection", layout: Layout, *, adopt: bool = True, thorough: bool = False
) -> Difference:
    """Return what differs between the catalog and the store's files; nothing but new records is read.

    Args:
        connection: to the catalog.
        layout: the store.
        adopt: give an artifact without a label here the one in its record.
        thorough: look over all parts.
    """
    times = {} if thorough else dict(connection.execute("SELECT part, time FROM catalog_parts").fetchall())
    look = look_over(layout, times)
    known, seen = _known_in(connection, sorted(look.parts)), look.stamps
    # an artifact that was lost and made again has its record at the same path, and maybe a new label
    new = [path for path, stamp in seen.items() if known.get(path) != stamp]
    seen |= _labels_of(layout, [path for path in new if path.endswith(f"/{RECORD_FILE}")], adopt=adopt)
    if others := [path for path in seen if path not in known]:
        known |= _known(connection, "path IN (SELECT unnest(?::VARCHAR[]))", [others])
    changed = {path: stamp for path, stamp in seen.items() if known.get(path) != stamp}
    return Difference(changed, [path for path in known if path not in seen or path in changed], look.times)


def _known_in(connection: "DuckDBPyConnection", parts: list[str]) -> Stamps:
    """Return the stamps that the catalog has of the files in some parts of the store."""
    if 0 < len(parts) <= _FEW_PARTS:  # prefixes are compared much faster than parts are cut out
        return _known(connection, " OR ".join(["starts_with(path, ? || '/')"] * len(parts)), parts)
    return _known(connection, f"list_contains(?, {_PART})", [parts])


def _known(connection: "DuckDBPyConnection", where: str, values: Sequence[object]) -> Stamps:
    rows = connection.execute(f"SELECT path, mtime_ns, size FROM catalog_files WHERE {where}", values)  # noqa: S608
    return {path: (time, size) for path, time, size in rows.fetchall()}


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
    if adopt and (difference.paths or thorough):
        times = dict(difference.times)
        for path in unreadable:
            first, second, *_ = path.split("/")
            times[f"{first}/{second}" if first in (LABELS, "removed") else first] = UNSURE
        connection.execute("BEGIN")
        connection.execute("DELETE FROM catalog_parts")
        rows = [{"part": part, "time": time} for part, time in sorted(sure_times(layout, times).items())]
        insert(connection, "catalog_parts", rows)
        connection.execute("COMMIT")


def num_indexed(connection: "DuckDBPyConnection") -> int:
    """Return how many files have rows in the catalog."""
    ((number,),) = connection.execute("SELECT count(*) FROM catalog_files").fetchall()
    return int(number)


def update_files(
    connection: "DuckDBPyConnection", layout: Layout, paths: Sequence[Path], say: Report
) -> None:
    """Update the rows of these files, whether or not they seem to have changed."""
    names = [path.relative_to(layout.root).as_posix() for path in paths]
    apply_difference(connection, layout, Difference(_stamps(layout, names), names), say)


def read_files(layout: Layout, stamps: Stamps, say: Report) -> Rows:
    """Return the rows of files of the store, by table; one that cannot be read has none, and is reported."""
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    for path, (mtime, size) in stamps.items():
        try:
            key, of_file = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            say(f"the catalog leaves out {printable(path)}: {error}")
            continue
        rows["catalog_files"].append({"path": path, "mtime_ns": mtime, "size": size, "key": key})
        for name, more in of_file.items():
            rows[name].extend(more)
    return rows


def apply_difference(
    connection: "DuckDBPyConnection", layout: Layout, difference: Difference, say: Report
) -> set[str]:
    """Replace the rows of what differs, in one transaction; return the paths of files that cannot be read."""
    if not difference.paths:
        return set()
    unreadable = set(difference.changed)
    connection.execute("BEGIN")
    _delete(connection, difference.stale)
    remaining = iter(sorted(difference.changed))
    while batch := list(islice(remaining, _BATCH)):  # so that memory does not grow with the store
        rows = read_files(layout, {path: difference.changed[path] for path in batch}, say)
        unreadable -= {row["path"] for row in rows["catalog_files"]}
        for name, more in rows.items():
            insert(connection, name, more)
    connection.execute("COMMIT")
    return unreadable


def _delete(connection: "DuckDBPyConnection", paths: Sequence[str]) -> None:
    """Delete the rows of these files; keys of different tables never coincide."""
    # The names in these statements are constants of the package; what varies is a parameter.
    known, named = (
        "FROM catalog_files WHERE path IN (SELECT unnest($paths::VARCHAR[]))",
        {"paths": list(paths)},
    )
    files = connection.execute(f"SELECT key, split_part(path, '/', 1) {known}", named).fetchall()
    if not files:  # nothing but new files, as after a publication
        return
    keys: dict[str, list[str]] = {tree: [] for tree in TREES.values()}
    for key, tree in files:
        keys[tree if tree in keys else ""].append(key)
    for name, column in KEYS.items():
        if stale := keys[TREES[name]]:
            rows = f"DELETE FROM {name} WHERE {column} IN (SELECT unnest($keys::VARCHAR[]))"  # noqa: S608
            connection.execute(rows, {"keys": stale})
    connection.execute(f"DELETE {known}", named)


def insert(connection: "DuckDBPyConnection", table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, given as column → value, into a table."""
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
