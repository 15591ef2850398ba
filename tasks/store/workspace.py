"""Temporary folders of a store, and what killed processes left in it.

The lock of a temporary folder is taken before the folder is made: a process that gets that lock knows that
the owner is dead, and may sweep. Whoever next makes, removes or looks something up sweeps.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import ProcessLock, sweep_unfinished
from tokmill.tasks.store.layout import ALIASES, LABELS, Layout

LOCK_SUFFIX = ".lock"
_WORKSPACE = re.compile("[0-9]+-[0-9a-f]+")  # process and uuid


@contextmanager
def workspace(layout: Layout) -> Iterator[Path]:
    """Yield an empty directory for a stage to write into; what is left in it is removed afterwards."""
    place = layout.temporary / f"{os.getpid()}-{uuid.uuid4().hex}"
    lock = ProcessLock(place.with_name(place.name + LOCK_SUFFIX))
    lock.acquire()
    try:
        out = place / "out"
        out.mkdir(parents=True, exist_ok=True)
        yield out
    finally:
        shutil.rmtree(place, ignore_errors=True)  # the next sweep removes the rest
        lock.release()


def sweep(layout: Layout) -> list[Path]:
    """Remove the temporary directories of dead processes."""
    swept = [place for place in workspaces(layout) if sweep_one(place)]
    for entry in disk.entries(layout.root / LABELS) if swept else ():  # a dead process may have given one out
        disk.touch(Path(entry.path))
    return swept


def workspaces(layout: Layout) -> list[Path]:
    """Return the temporary directories, also those of which there is only the lock, sorted.

    Anything else there is left alone: the store may be a folder that has a `.tmp` of its own.
    """
    names = {entry.name.removesuffix(LOCK_SUFFIX) for entry in disk.entries(layout.temporary)}
    return [layout.temporary / name for name in sorted(filter(_WORKSPACE.fullmatch, names))]


def sweep_one(place: Path) -> bool:
    """Remove a temporary directory unless its process lives; return whether there was one."""
    lock = ProcessLock(place.with_name(place.name + LOCK_SUFFIX))
    if not lock.try_acquire():
        return False
    try:
        existed = place.exists()
        shutil.rmtree(place, ignore_errors=True)
        return existed
    finally:
        lock.release()


def tidy(layout: Layout) -> list[Path]:
    """Remove what killed processes left: temporary directories, files that they were writing, their locks."""
    swept = sweep(layout)
    sweep_locks(layout)
    for folder in (layout.runs, layout.leases, layout.cache):
        sweep_unfinished(folder)
    sweep_unfinished(layout.removed, "*/")
    sweep_unfinished(layout.root / ALIASES, "**/")
    return swept


def sweep_locks(layout: Layout) -> None:
    """Remove lock files that nobody holds; they are harmless, but they accumulate."""
    for entry in disk.entries(layout.locks):
        path = layout.locks / entry.name
        if path == layout.catalog_lock or path.suffix != LOCK_SUFFIX:
            continue
        lock = ProcessLock(path)
        if lock.try_acquire():
            lock.release()
