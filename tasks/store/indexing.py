"""Update the catalog's rows from files that are new, changed or deleted.

The table `catalog_files` holds, for each file with rows, its path below the store, its modification time and
size, and the key of its rows. When a file changes, its rows are deleted and inserted again in one
transaction, so rows are neither doubled nor lost. A file that cannot be read has no rows; it is reported, and
tried again every time.

A store has parts: a folder of artifacts for each kind, the labels of each kind, aliases, runs, tombstones of
each kind. A part is looked over (each of its files is listed, with its time and size) unless its own time is
the one that it had when it was last looked over:

- of artifacts, runs, remarks on them, and tombstones that is the time of their folder, which changes whenever
  something in it appears, goes, or is replaced by a rename. A time of the last moments before a look is not
  trusted, since the folder may have changed once more within the same tick of the clock;
- labels lie in a folder for each name. Whoever gives one out gives the folder of its kind a new time first,
  other than to what is about to be published: that is found by the artifact, or, if the process is killed
  before, when its temporary folder is swept, which gives all these folders a new time.

So a hundred thousand artifacts to which nothing was added cost a few dozen looks. A file that was changed in
place, against the store's rules, may go unnoticed here; `verify` and `catalog rebuild` read everything.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout, is_prefix, printable
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, TABLES, TREES, Rows, rows_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Report: TypeAlias = Callable[[str], None]
"""Receives a one-line message for people."""

_BATCH: Final = 4096
_FEW_PARTS: Final = 8
_FEW_ROWS: Final = 128


Stamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds and size in bytes."""

Stamps: TypeAlias = dict[str, Stamp]
"""Stamp of each file, by posix path below the store."""

UNSURE: Final = -1
"""The time of a part that has to be looked over every time."""

PART_OF: Final = (
    "CASE WHEN split_part(path, '/', 1) IN ('labels', 'removed') "
    "THEN split_part(path, '/', 1) || '/' || split_part(path, '/', 2) ELSE split_part(path, '/', 1) END"
)
"""SQL: the part of a file's path."""

_TICK_NS = 2_000_000_000  # the coarsest clock of a file system that is in use


@dataclass(frozen=True)
class Difference:
    """What differs between a catalog and the store's files.

    Attributes:
        changed: the stamps of files that are new or have changed.
        stale: paths of files whose rows in the catalog no longer count.
        times: of the store's parts.
    """

    changed: Stamps
    stale: Sequence[str]
    times: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of files that differ."""
        return len(self.changed.keys() | {*self.stale})


def find_difference(
    connection: "DuckDBPyConnection", layout: Layout, *, adopt: bool = True, thorough: bool = False
) -> Difference:
    """Return what differs between the catalog and the store's files; nothing but new records is read."""
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

    With `adopt`, each that has no label here is given the one in its record.
    """
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
    stamps: Stamps = {}
    for name in owners:
        stamps |= label_stamps(layout, *name)
    return stamps


def read_files(layout: Layout, stamps: Stamps, say: Report) -> Rows:
    """Return the rows of files of the store, by table; one that cannot be read has none, and is reported."""
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    for path, (mtime, size) in stamps.items():
        try:
            key, given = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            say(f"the catalog leaves out {printable(path)}: {error}")
            continue
        rows["catalog_files"].append({"path": path, "mtime_ns": mtime, "size": size, "key": key})
        for name, more in given.items():
            rows[name].extend(more)
    return rows


def apply_difference(
    connection: "DuckDBPyConnection", layout: Layout, difference: Difference, say: Report
) -> set[str]:
    """Replace the rows of what differs; return the paths of files that cannot be read.

    A batch of files at a time, so that memory does not grow with the store; in one transaction.
    """
    if not difference:
        return set()
    unreadable = set(difference.changed)
    connection.execute("BEGIN")
    _delete(connection, difference.stale)
    for batch in _batches(sorted(difference.changed)):
        rows = read_files(layout, {path: difference.changed[path] for path in batch}, say)
        unreadable -= {row["path"] for row in rows["catalog_files"]}
        for name, more in rows.items():
            insert(connection, name, more)
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


def insert(connection: "DuckDBPyConnection", name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, given as column → value, into a table."""
    if not rows:
        return
    columns = ALL_TABLES[name]
    if len(rows) <= _FEW_ROWS:
        lists = ", ".join(f"unnest(?::{sql_type}[])" for sql_type in columns.values())
        given = [[row.get(column) for row in rows] for column in columns]
        connection.execute(f"INSERT INTO {name} SELECT {lists}", given)
    else:
        _insert_many(connection, name, rows, columns)


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


@dataclass(frozen=True)
class Look:
    """What a look found.

    Attributes:
        stamps: of all files in the parts that were looked over.
        parts: these parts; whatever of them is not among the stamps is gone.
        times: of all parts of the store.
    """

    stamps: Stamps
    parts: frozenset[str]
    times: Mapping[str, int]


def part_of(path: str) -> str:
    """Return the part of a file, by its path below the store."""
    first, second, *_ = path.split("/")
    return f"{first}/{second}" if first in (LABELS, "removed") else first


def look_over(layout: Layout, trusted: Mapping[str, int]) -> Look:
    """Look over the parts of a store whose times differ from those in `trusted`."""
    times = _times(layout)
    parts = {part for part, time in times.items() if time == UNSURE or trusted.get(part) != time}
    stamps: Stamps = {}
    for part in sorted(parts):
        found = _stamps(layout, _files(layout, part))
        if not _is_complete(layout, part, found):
            times[part] = UNSURE
        stamps |= found
    return Look(stamps, frozenset(parts | (trusted.keys() - times.keys())), times)


def sure_times(layout: Layout, times: Mapping[str, int]) -> dict[str, int]:
    """Return the times, without those that may come twice, because they are of this moment."""
    latest = shared.local_now_ns(layout.root) - _TICK_NS  # by the file system's clock
    return {part: time if time < latest else UNSURE for part, time in times.items()}


def stamps_of(layout: Layout, paths: Iterable[Path]) -> Stamps:
    """Return the stamps of these files, without those that do not exist."""
    return _stamps(layout, (path.relative_to(layout.root).as_posix() for path in paths))


def label_stamps(layout: Layout, kind: str, name: str) -> Stamps:
    """Return the stamps of the labels of one (kind, name)."""
    folder = layout.names(LABELS, kind, name)
    return stamps_of(
        layout, (folder / entry.name for entry in _entries(folder) if entry.name.startswith("@"))
    )


def _times(layout: Layout) -> dict[str, int]:
    """Return the time of every part."""
    flat = [folder.name for folder in (layout.runs, layout.annotations) if folder.is_dir()]
    deep = [
        f"{tree}/{entry.name}"
        for tree in (LABELS, layout.removed.name)
        for entry in _entries(layout.root / tree)
        if entry.is_dir()
    ]
    return {part: _time(layout.root / part) for part in (*layout.kinds(), *flat, *deep)} | {ALIASES: UNSURE}


def _time(path: Path) -> int:
    try:
        return disk.state(path).mtime_ns
    except OSError:
        return UNSURE


def _files(layout: Layout, part: str) -> Iterator[str]:
    """Yield the paths of the files of a part, as far as the store writes such names."""
    tree, _, _ = part.partition("/")
    if tree in (LABELS, ALIASES):
        found = _named(layout.root / part, part)
    elif tree in (layout.runs.name, layout.annotations.name, layout.removed.name):
        names = (entry.name for entry in _entries(layout.root / part))
        found = (f"{part}/{name}" for name in names if name.endswith(".json") and name[0] != ".")
    else:
        names = (entry.name for entry in _entries(layout.root / part))
        found = (f"{part}/{name}/{RECORD_FILE}" for name in names if is_prefix(name))
    return (path for path in found if path.isascii())


def _is_complete(layout: Layout, part: str, found: Stamps) -> bool:
    """Whether every folder of a kind has a record; one that is being copied into the store gets it later."""
    if (
        part.startswith((LABELS, ALIASES))
        or part in (layout.runs.name, layout.annotations.name)
        or "/" in part
    ):
        return True
    return all(
        f"{part}/{entry.name}/{RECORD_FILE}" in found
        for entry in _entries(layout.root / part)
        if is_prefix(entry.name)
    )


def _stamps(layout: Layout, paths: Iterable[str]) -> Stamps:
    """Stamp files before they are read, so that a later change is noticed."""
    root, stamps = str(layout.root), {}
    for path in paths:
        try:
            state = disk.state(f"{root}/{path}")  # a file that became a link counts as another
        except OSError:  # it does not exist, or may not be read
            continue
        stamps[path] = (state.mtime_ns, state.num_bytes)
    return stamps


def _named(folder: Path | str, relative: str) -> Iterator[str]:
    for entry in _entries(folder):
        if entry.name.startswith("@"):
            yield f"{relative}/{entry.name}"
        elif entry.is_dir():
            yield from _named(entry.path, f"{relative}/{entry.name}")


def _entries(folder: Path | str) -> "list[os.DirEntry[str]]":
    try:
        return disk.entries(folder)
    except OSError:  # it does not exist, or may not be read
        return []
