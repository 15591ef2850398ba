"""Check that a whole store is sound: artifacts, here and in the remote, names, runs, and the catalog.

A file that the catalog has not seen yet is not a problem; a record that it has seen never changes.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.indexing import paths_in
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, REMOVED, Layout, printable, url_of
from tokmill.tasks.store.record import read_record, tombstone
from tokmill.tasks.store.remote import remote_damages
from tokmill.tasks.store.rows import rows_of
from tokmill.tasks.store.snapshot import reading
from tokmill.tasks.store.verify import Problem, problems


def store_problems(layout: Layout, *, full: bool) -> Iterator[Problem]:
    """Yield all problems of a store: artifacts, here and in the remote, names, runs, and the catalog's."""
    for place in layout.places():
        yield from problems(place, full=full)
        yield from _wrong_in_remote(place, full=full)
    removed = (f"{REMOVED}/{entry.name}" for entry in disk.entries(layout.removed) if entry.is_dir())
    for part in (LABELS, ALIASES, layout.runs.name, layout.annotations.name, *removed):
        for path in sorted(paths_in(layout, part)):
            try:
                rows_of(layout, layout.root / path)
            except (StoreError, MachineError) as error:
                folder, _, name = printable(path).rpartition("/")
                yield Problem(folder, name, str(error))
    yield from _other_in_catalog(layout)


def _wrong_in_remote(place: Path, *, full: bool) -> Iterator[Problem]:
    where = f"{place.parent.name}/{place.name} in {url_of(place)}"
    try:
        yield from (Problem(where, path, message) for path, message in remote_damages(place, full=full))
    except (StoreError, FileNotFoundError):  # of the record, which is known
        return
    except OSError as error:
        yield Problem(where, ".", f"cannot be read: {error}")


def _other_in_catalog(layout: Layout) -> Iterator[Problem]:
    """Yield artifacts of the catalog that are gone, but were not removed, or have another record now."""
    if not layout.catalog.exists():
        return
    try:
        with reading(layout.catalog) as connection:
            rows = connection.execute("SELECT kind, fingerprint, record_digest FROM artifacts ORDER BY ALL")
            seen = rows.fetchall()
    except StoreError as error:
        yield Problem("catalog", layout.catalog.name, f"cannot be read: {error}")
        return
    for kind, fingerprint, digest in seen:
        place = layout.artifact(kind, fingerprint)
        message = ""
        if not place.exists():
            stone = tombstone(layout, kind, fingerprint)
            if stone is None or stone.record.record_digest != digest:
                message = "is in the catalog but no longer in the store; its next update drops it"
        else:
            with suppress(StoreError, MachineError):  # which is known
                if read_record(place).record_digest != digest:
                    message = (
                        "the catalog has another record: it was changed later, or the artifact was made "
                        "again; `tokmill store rebuild` reads it again"
                    )
        if message:
            yield Problem("catalog", f"{kind}/{place.name}/{RECORD_FILE}", message)
