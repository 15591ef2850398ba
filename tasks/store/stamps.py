"""Times and sizes of the files with rows in the catalog, which compares them to find changes.

Paths are text and folders are listed once, since a store of ten thousand artifacts is scanned before every
query.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from tokmill.tasks.store.labels import ALIASES, LABELS
from tokmill.tasks.store.layout import RECORD_FILE, Layout, is_prefix
from tokmill.tasks.store.storage import STORAGE, Entry

Stamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds and size in bytes."""

Stamps: TypeAlias = dict[str, Stamp]
"""Stamp of each file, by posix path below the store."""


def record_stamps(layout: Layout) -> Stamps:
    """Return the stamps of all records."""
    folders = (
        f"{kind}/{entry.name}"
        for kind in layout.kinds()
        for entry in _entries(layout.root / kind)
        if is_prefix(entry.name)
    )
    return _stamps(layout, (f"{folder}/{RECORD_FILE}" for folder in folders))


def name_and_run_stamps(layout: Layout) -> Stamps:
    """Return the stamps of all labels, aliases, runs and remarks on these."""
    names = (path for tree in (LABELS, ALIASES) for path in _named(layout.root / tree, tree))
    files = [
        f"{folder.name}/{entry.name}"
        for folder in (layout.runs, layout.annotations)
        for entry in _entries(folder)
        if entry.name.endswith(".json") and entry.name[0] != "."
    ]
    paths = [*names, *files]
    return _stamps(layout, (path for path in paths if path.isascii()))  # all that the store writes are


def stamps_of(layout: Layout, paths: Iterable[Path]) -> Stamps:
    """Return the stamps of these files, without those that do not exist."""
    return _stamps(layout, (path.relative_to(layout.root).as_posix() for path in paths))


def _stamps(layout: Layout, paths: Iterable[str]) -> Stamps:
    """Stamp files before they are read, so that a later change is noticed."""
    root, stamps = str(layout.root), {}
    for path in paths:
        try:
            state = STORAGE.state(f"{root}/{path}")  # a file that became a link counts as another
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


def _entries(folder: Path | str) -> list[Entry]:
    try:
        return STORAGE.entries(folder)
    except OSError:  # it does not exist, or may not be read
        return []
