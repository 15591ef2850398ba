"""Check that a whole store is sound: artifacts, here and in the remote, names, runs, and the catalog.

The catalog is compared with the files as it is. A file that it has not seen yet is not a problem; one that it
has seen and that has changed is: a published record never changes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.indexing import apply_changes, find_changes, paths_in
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, REMOVED, Layout, printable, url_of
from tokmill.tasks.store.record import tombstone
from tokmill.tasks.store.remote import remote_damages
from tokmill.tasks.store.rows import rows_of
from tokmill.tasks.store.snapshot import attached, private
from tokmill.tasks.store.tables import KEYS, TABLES, check_version
from tokmill.tasks.store.verify import Problem, problems

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SEEN: Final = """
    SELECT s.path, s.key, n.path IS NULL AS is_gone,
           coalesce((s.mtime_ns, s.size) = (n.mtime_ns, n.size), false) AS is_same
    FROM snapshot.catalog_files s LEFT JOIN scratch.catalog_files n USING (path)
    WHERE s.key IS NOT NULL AND (n.path IS NULL OR n.key IS NOT NULL) ORDER BY ALL
"""


def store_problems(layout: Layout, *, full: bool) -> Iterator[Problem]:
    """Yield all problems of a store; nothing is changed."""
    for place in layout.places():
        yield from problems(place, full=full)
        yield from _wrong_in_remote(place, full=full)
    yield from _unreadable(layout)
    yield from _wrong_catalog(layout)


def _wrong_in_remote(place: Path, *, full: bool) -> Iterator[Problem]:
    """Yield what the remote, if there is one, does not have as it was published."""
    where = f"{place.parent.name}/{place.name} in {url_of(place)}"
    try:
        yield from (Problem(where, path, message) for path, message in remote_damages(place, full=full))
    except (StoreError, FileNotFoundError):  # of the record, which is known
        return
    except OSError as error:
        yield Problem(where, ".", f"cannot be read: {error}")


def _unreadable(layout: Layout) -> Iterator[Problem]:
    """Yield labels, aliases, runs, remarks and tombstones that are not what was written."""
    removed = (f"{REMOVED}/{entry.name}" for entry in disk.entries(layout.removed) if entry.is_dir())
    for part in (LABELS, ALIASES, layout.runs.name, layout.annotations.name, *removed):
        for path in sorted(paths_in(layout, part)):
            try:
                rows_of(layout, layout.root / path)
            except (StoreError, MachineError) as error:
                folder, _, name = printable(path).rpartition("/")
                yield Problem(folder, name, str(error))


def _wrong_catalog(layout: Layout) -> Iterator[Problem]:
    """Yield the differences between the catalog and the files that it was made from."""
    if not layout.catalog.exists():
        return
    try:
        with private(layout.root) as connection:
            apply_changes(connection, layout, find_changes(connection, layout, adopt=False))
            with attached(connection, layout.catalog):
                check_version(connection)
                yield from _differences(connection, layout)
    except StoreError as error:
        yield Problem("catalog", layout.catalog.name, f"cannot be compared with the records: {error}")


def _differences(connection: "DuckDBPyConnection", layout: Layout) -> Iterator[Problem]:
    changed = _changed_keys(connection)
    for path, key, is_gone, is_same in connection.execute(_SEEN).fetchall():
        is_record, place = path.endswith(f"/{RECORD_FILE}"), layout.root / path
        if is_gone:
            is_known = is_record and (place.parent.exists() or _was_removed(connection, layout, path, key))
            if not is_known:
                message = "is in the catalog but no longer in the store; its next update drops it"
                yield Problem("catalog", path, message)
        elif key in changed and (is_record or is_same):
            message = (
                f"the catalog has other {', '.join(changed[key])}: the file was changed later, or its "
                "artifact was made again; `tokmill store rebuild` reads it again"
            )
            yield Problem("catalog", path, message)


def _was_removed(connection: "DuckDBPyConnection", layout: Layout, path: str, fingerprint: str) -> bool:
    """Whether the artifact that the catalog has was removed, and not an earlier one of its recipe."""
    stone = tombstone(layout, path.partition("/")[0], fingerprint)
    query = "SELECT record_digest FROM snapshot.artifacts WHERE fingerprint = ?"
    digests = connection.execute(query, [fingerprint]).fetchall()
    return stone is not None and digests == [(stone.record.record_digest,)]


def _changed_keys(connection: "DuckDBPyConnection") -> dict[str, list[str]]:
    """Return, by a file's key, the tables in which its rows differ from the catalog's."""
    changed: dict[str, list[str]] = {}
    for table, key in KEYS.items():
        both = f"SELECT *, 1 AS times FROM scratch.{table} UNION ALL SELECT *, -1 FROM snapshot.{table}"  # noqa: S608
        same_row = ", ".join(TABLES[table])  # names are constants of the package
        apart = f"SELECT DISTINCT {key} FROM ({both}) GROUP BY {same_row} HAVING sum(times) <> 0"  # noqa: S608
        for (owner,) in connection.execute(apart).fetchall():
            changed.setdefault(owner, []).append(table)
    return changed
