"""What lies about in a store beside artifacts, and is of no use any more.

- damaged artifacts that were set aside, once they are old enough;
- temporary folders of dead processes;
- Prefect's result files of artifacts that are gone: `.prefect/<verb>-<fingerprint>`;
- what ended runs and their tasks told each other: `telling/<run id>`, `.prefect/telling/<run id>`;
- columns of text that were given in memory and that no artifact points at (`.texts`), once they are old
  enough: whoever wrote them may be about to use them.

Records of runs, labels and tombstones stay: they are the history.
"""

import re
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.store.keeping import days
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout
from tokmill.tasks.store.leases import live_leases
from tokmill.tasks.store.publish import is_stale, sweep_one, workspaces
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.storage import STORAGE

_RESULT = re.compile(r"[a-z_]+-(?P<fingerprint>[0-9a-f]{64})")
_DAY_SECONDS = 86400.0
_MADE_FROM_TEXTS = ("corpus", "tokenizer")


class Leftover(NamedTuple):
    """A file or folder that is of no use any more: what it is, where, its bytes, and why."""

    what: str
    path: Path
    num_bytes: int
    why: str

    def remove(self, layout: Layout) -> None:
        """Remove it, unless its owner lives."""
        if self.path.parent == layout.temporary:
            sweep_one(self.path)
        elif STORAGE.is_folder(self.path):
            STORAGE.remove_tree(self.path)
        else:
            STORAGE.remove(self.path)


def leftovers(layout: Layout, garbage: Container[str], older_than_days: float) -> list[Leftover]:
    """Return what is of no use any more.

    Args:
        layout: the store.
        garbage: the fingerprints of artifacts that are there and would be removed first.
        older_than_days: younger damaged artifacts are left for people to look at.
    """
    before = time.time() - older_than_days * _DAY_SECONDS
    return [
        *_damaged(layout, older_than_days),
        *_results(layout, garbage),
        *_telling(layout),
        *_temporary(layout),
        *_texts(layout, garbage, min(before, time.time() - _DAY_SECONDS)),
    ]


def tree_bytes(folder: Path) -> int:
    """Return the bytes of all regular files below a folder; what vanishes meanwhile does not count."""
    return sum(_num_bytes(path) for path in STORAGE.tree(folder))


def _num_bytes(path: Path) -> int:
    try:
        state = STORAGE.state(path)
    except OSError:
        return 0
    return state.num_bytes if state.kind == "file" else 0


def _damaged(layout: Layout, older_than_days: float) -> Iterator[Leftover]:
    before = time.time() - older_than_days * _DAY_SECONDS
    why = f"set aside {days(older_than_days)} ago or earlier" if older_than_days else "set aside"
    for kind in STORAGE.entries(layout.damaged):
        for entry in STORAGE.entries(layout.damaged / kind.name):
            path = layout.damaged / kind.name / entry.name
            if _newest(path) <= before:
                yield Leftover("damaged artifact", path, tree_bytes(path), why)


def _newest(folder: Path) -> float:
    """Return the time of the last change in a folder, or of the folder."""
    return max(STORAGE.state(path).mtime_ns for path in (folder, *STORAGE.tree(folder))) / 1e9


def _results(layout: Layout, garbage: Container[str]) -> Iterator[Leftover]:
    found = [(entry.name, _RESULT.fullmatch(entry.name)) for entry in STORAGE.entries(layout.results)]
    present = {place.name for place in layout.places()}  # after the list: what came between is no leftover
    for name, result in found:
        if result is not None:
            owner = result["fingerprint"]
            if owner in garbage or owner[:PREFIX_CHARS] not in present:
                path = layout.results / name
                yield Leftover("result file of Prefect", path, _num_bytes(path), "its artifact is gone")


def _telling(layout: Layout) -> Iterator[Leftover]:
    folders = (layout.telling, layout.telling_nearby)
    paths = [folder / entry.name for folder in folders for entry in STORAGE.entries(folder)]
    alive = live_leases(layout)  # a run has its lease before it has its folder, and longer
    for path in paths:
        if path.name not in alive:
            yield Leftover("messages of a run", path, tree_bytes(path), "the run has ended")


def _temporary(layout: Layout) -> Iterator[Leftover]:
    for path in workspaces(layout):
        if STORAGE.is_taken(path) and is_stale(path):
            yield Leftover("temporary folder", path, tree_bytes(path), "its process is dead")


def _texts(layout: Layout, garbage: Container[str], before: float) -> Iterator[Leftover]:
    """Yield old columns that no artifact is made from; in a bucket they stay."""
    files = [] if "://" in layout.location else STORAGE.entries(layout.texts)
    old = [file.name for file in files if STORAGE.state(layout.texts / file.name).mtime_ns / 1e9 <= before]
    pointed_at = _pointed_at(layout, garbage) if old else set()
    for name in old:
        if name not in pointed_at:
            path = layout.texts / name
            num_bytes = tree_bytes(path) or _num_bytes(path)
            yield Leftover("text given in memory", path, num_bytes, "nothing is made from it")


def _pointed_at(layout: Layout, garbage: Container[str]) -> set[str]:
    """Return the names of the files in `.texts` that artifacts were made from."""
    records = (read_record(place) for place in layout.artifacts() if place.parent.name in _MADE_FROM_TEXTS)
    kept = (record for record in records if record.fingerprint not in garbage)
    origins = (entry.origin for record in kept for entry in record.inputs if entry.origin)
    return {origin.rpartition("/")[2] for origin in origins}
