"""Look over a store for what changed since it was indexed, without reading what did not.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout, is_prefix

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
