"""Check that a whole store is sound: artifacts, here and in the remote, names, runs, and the catalog.

The catalog is compared with the files as it is. A file that it has not seen yet is not a problem; one that it
has seen and that has changed is: a published record never changes.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import DamagedError
from tokmill.tasks.store.indexing import sync_files
from tokmill.tasks.store.labels import named_files, read_name
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout, printable, url_of
from tokmill.tasks.store.record import tombstone
from tokmill.tasks.store.remote import remote_damages
from tokmill.tasks.store.rows import rows_of
from tokmill.tasks.store.snapshot import attached, private
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, check_version
from tokmill.tasks.store.verify import Problem, problems

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def store_problems(layout: Layout, *, full: bool) -> Iterator[Problem]:
    """Yield all problems of a store; nothing is changed."""
    for place in layout.places():
        yield from problems(place, full=full)
        yield from _wrong_in_remote(place, full=full)
    yield from _wrong_names(layout)
    yield from _wrong_runs(layout)
    yield from _wrong_catalog(layout)


def _wrong_in_remote(place: Path, *, full: bool) -> Iterator[Problem]:
    """Yield what the remote, if there is one, does not have as it was published."""
    where = f"{place.parent.name}/{place.name} in {url_of(place)}"
    try:
        yield from (Problem(where, path, message) for path, message in remote_damages(place, full=full))
    except (DamagedError, FileNotFoundError):  # of the record, which is known
        return
    except OSError as error:
        yield Problem(where, ".", f"cannot be read: {error}")


def _wrong_names(layout: Layout) -> Iterator[Problem]:
    """Yield files that are neither labels nor aliases; an empty one, left by a dead writer, is fine."""
    for tree in (LABELS, ALIASES):
        for path in sorted(named_files(layout.root / tree)):
            message = _unreadable_file(layout, path)
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
            message = _unreadable_file(layout, path)
            if message:
                where = printable(folder.relative_to(layout.root))
                yield Problem(where, printable(path.name), message)


def _wrong_catalog(layout: Layout) -> Iterator[Problem]:
    """Yield the differences between the catalog and the files that it was made from."""
    if not layout.catalog.exists():
        return
    try:
        with private(layout.root) as connection:
            sync_files(connection, layout, lambda line: None, adopt=False)  # unreadable ones are known
            with attached(connection, layout.catalog):
                check_version(connection)
                yield from _differences(connection, layout)
    except StoreError as error:
        yield Problem("catalog", layout.catalog.name, f"cannot be compared with the records: {error}")


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
                yield Problem("catalog", path, message)
        elif key in changed and (path.endswith(RECORD_FILE) or stamp == now[key][1:]):
            message = (
                f"the catalog has other {', '.join(changed[key])}: the file was changed later, or its "
                "artifact was made again; `tokmill store rebuild` reads it again"
            )
            yield Problem("catalog", path, message)


def _was_removed(connection: "DuckDBPyConnection", layout: Layout, kind: str, fingerprint: str) -> bool:
    """Whether the artifact that the catalog has was removed, and not an earlier one of its recipe."""
    stone = tombstone(layout, kind, fingerprint)
    query = "SELECT record_digest FROM snapshot.artifacts WHERE fingerprint = ?"
    digests = connection.execute(query, [fingerprint]).fetchall()
    return stone is not None and digests == [(stone.record.record_digest,)]


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


def _unreadable_file(layout: Layout, path: Path) -> str | None:
    try:
        rows_of(layout, path)
    except StoreError as error:
        return str(error)
    return None


def _is_empty(path: Path) -> bool:
    """Whether it is an empty regular file, as a writer that died leaves one."""
    with suppress(OSError):
        return disk.state(path)[:2] == ("file", 0)
    return False
