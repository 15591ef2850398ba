"""Checks a whole store: every artifact, label, alias and run, and the catalog.

The catalog is compared with the files without being updated first. A file that it has not seen yet is not a
problem (the next query adds it). A file that it has seen and that has changed, or no longer exists, is one: a
published record never changes, so it was changed by hand, or its artifact was made again.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.catalog_schema import ALL_TABLES, check_version
from tokmill.tasks.store.connection import attached, has_snapshot, private
from tokmill.tasks.store.disk import DamagedError
from tokmill.tasks.store.indexing import sync_files
from tokmill.tasks.store.integrity import Problem, problems
from tokmill.tasks.store.labels import named_files, read_name
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout, printable
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.tables import KEYS, rows_of
from tokmill.tasks.store.tombstones import tombstone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CATALOG = "catalog"


def store_problems(layout: Layout, *, full: bool) -> Iterator[Problem]:
    """Yield all problems of a store; nothing is changed.

    Args:
        layout: the store.
        full: compare the files' digests, and not only their sizes.
    """
    for place in layout.places():
        yield from problems(place, full=full)
        yield from _wrong_in_remote(place, full=full)
    yield from _wrong_names(layout)
    yield from _wrong_runs(layout)
    yield from _wrong_catalog(layout)


def _wrong_in_remote(place: Path, *, full: bool) -> Iterator[Problem]:
    """Yield what the remote, if there is one, does not have as it was published."""
    if remote := remote_of(place):
        with suppress(DamagedError, FileNotFoundError):  # a record that is unreadable is known
            name = remote.name_of(place)
            for path, message in remote.damages(name, full=full):
                yield Problem(f"{name} in {remote.url}", path, message)


def _wrong_names(layout: Layout) -> Iterator[Problem]:
    """Yield files that are neither labels nor aliases; an empty one, left by a dead writer, is fine."""
    for tree in (LABELS, ALIASES):
        for path in sorted(named_files(layout.root / tree)):
            message = _unreadable(layout, path)
            if message is None and not read_name(path)[1] and not _is_empty(path):
                message = "holds no fingerprint, so it names nothing"
            if message:
                yield Problem(printable(path.parent.relative_to(layout.root)), printable(path.name), message)


def _wrong_runs(layout: Layout) -> Iterator[Problem]:
    """Yield runs, remarks and tombstones that are not what was written."""
    tombs = (layout.removed / entry.name for entry in disk.entries(layout.removed) if entry.is_dir())
    for folder in (layout.runs, layout.annotations, *tombs):
        names = (entry.name for entry in disk.entries(folder) if entry.name.endswith(".json"))
        for path in sorted(folder / name for name in names if not name.startswith(".")):
            message = _unreadable(layout, path)
            if message:
                where = printable(folder.relative_to(layout.root))
                yield Problem(where, printable(path.name), message)


def _wrong_catalog(layout: Layout) -> Iterator[Problem]:
    """Yield the differences between the catalog and the files that it was made from."""
    if not has_snapshot(layout.catalog):
        return
    try:
        with private(lineage=False) as connection:
            sync_files(connection, layout, lambda line: None, adopt=False)  # unreadable ones are known
            with attached(connection, layout.catalog):
                check_version(connection)
                yield from _differences(connection, layout)
    except StoreError as error:
        yield Problem(_CATALOG, layout.catalog.name, f"cannot be compared with the records: {error}")


def _differences(connection: "DuckDBPyConnection", layout: Layout) -> Iterator[Problem]:
    listed = "SELECT key, path, mtime_ns, size FROM {}.catalog_files ORDER BY path"
    now, seen = (
        {key: rest for key, *rest in connection.execute(listed.format(name)).fetchall()}
        for name in ("scratch", "snapshot")
    )
    changed = _changed_keys(connection)
    for key, (path, *stamp) in seen.items():
        if key not in now:
            place = layout.root / path
            if not (place.parent if place.name == RECORD_FILE else place).exists():
                if place.name == RECORD_FILE and _was_removed(connection, layout, place.parts[-3], key):
                    continue  # by a process that was killed then
                message = "is in the catalog but no longer in the store; its next update drops it"
                yield Problem(_CATALOG, path, message)
        elif key in changed and (path.endswith(RECORD_FILE) or stamp == now[key][1:]):
            message = (
                f"the catalog has other {', '.join(changed[key])}: the file was changed later, or its "
                "artifact was made again; `tokmill catalog rebuild` reads it again"
            )
            yield Problem(_CATALOG, path, message)


def _was_removed(connection: "DuckDBPyConnection", layout: Layout, kind: str, fingerprint: str) -> bool:
    """Whether the artifact that the catalog has was removed, and not an earlier one of its recipe."""
    left = tombstone(layout, kind, fingerprint)
    wanted = "SELECT record_digest FROM snapshot.artifacts WHERE fingerprint = ?"
    return left is not None and connection.execute(wanted, [fingerprint]).fetchall() == [
        (left.record.record_digest,)
    ]


def _changed_keys(connection: "DuckDBPyConnection") -> dict[str, list[str]]:
    """Return, by a file's key, the tables in which its rows differ from the catalog's."""
    changed: dict[str, list[str]] = {}
    for table, key in KEYS.items():
        both = f"SELECT *, 1 AS times FROM scratch.{table} UNION ALL SELECT *, -1 FROM snapshot.{table}"  # noqa: S608
        same_row = ", ".join(ALL_TABLES[table])  # names are constants of the package
        apart = f"SELECT DISTINCT {key} FROM ({both}) GROUP BY {same_row} HAVING sum(times) <> 0"  # noqa: S608
        for (owner,) in connection.execute(apart).fetchall():
            changed.setdefault(owner, []).append(table)
    return changed


def _unreadable(layout: Layout, path: Path) -> str | None:
    try:
        rows_of(layout, path)
    except StoreError as error:
        return str(error)
    return None


def _is_empty(path: Path) -> bool:
    """Whether it is an empty regular file; False if its state cannot be read."""
    try:
        state = disk.state(path)
    except OSError:
        return False
    return state.kind == "file" and state.num_bytes == 0
