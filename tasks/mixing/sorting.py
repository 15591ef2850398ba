"""Sorting more rows than fit in memory: sorted runs on disk, merged as they are read.

The model. Rows arrive in blocks and are gathered until `memory_rows` of them are there; these are sorted and
written to a scratch file as one run. Reading merges the runs a block at a time: of every run a piece is in
memory, and what is not above the smallest of the pieces' last keys can go out. What is less than a run stays
in memory.

Laws. No row is lost or made. Equal keys keep their order, however much fits in memory. Memory: three times
`memory_rows` while sorting, `kept_rows` at most over all runs while merging. Every row is written and read at
most once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.kernels.radix import order_of

Rows: TypeAlias = NDArray[Any]  # structured; field "key" is a uint64
MEMORY_ROWS = 1 << 21
BLOCK = 1 << 16


@dataclass(frozen=True)
class Scratch:
    """A folder for runs that do not fit in memory.

    Attributes:
        folder: it exists, and nobody else writes there.
        memory_rows: rows that are sorted in memory at a time.
        kept_rows: so many sorted rows may be in memory while they are given out; more go to disk even if
            they are one run.
    """

    folder: Path
    memory_rows: int = MEMORY_ROWS
    kept_rows: int = MEMORY_ROWS
    _names: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    def new_file(self) -> Path:
        """A file that does not exist yet."""
        return self.folder / f"{next(self._names)}.rows"


@contextmanager
def scratch_below(out: Path, num_sorters: int) -> Iterator[Scratch]:
    """A scratch folder in the directory `out`, gone in the end; `num_sorters` will use it side by side."""
    folder = out / ".scratch"
    folder.mkdir()
    try:
        yield Scratch(folder, kept_rows=MEMORY_ROWS // max(1, num_sorters))
    finally:
        rmtree(folder)


def sorted_rows(blocks: Iterable[Rows], scratch: Scratch) -> Iterator[Rows]:
    """Yield all rows by ascending key, in blocks.

    Args:
        blocks: of one structured type, with a field "key".
        scratch: where runs may lie.
    """
    runs: list[_Run] = []
    for rows in _gathered(blocks, scratch.memory_rows):
        ordered = _ordered(rows)
        if not runs and len(ordered) < min(scratch.memory_rows, scratch.kept_rows):
            yield from (ordered[at : at + BLOCK] for at in range(0, len(ordered), BLOCK))
            return
        runs.append(_Run.write(scratch.new_file(), ordered))
        del rows, ordered
    room = min(scratch.kept_rows, scratch.memory_rows // 4)
    yield from _merged(runs, max(1, room // max(1, len(runs))))


def regrouped(blocks: Iterable[Rows], sizes: Iterable[int]) -> Iterator[Rows]:
    """The same rows in blocks of these sizes, which add up to what there is."""
    waiting = iter(blocks)
    rest: list[Rows] = []
    for size in sizes:
        while sum(map(len, rest)) < size:
            rest.append(next(waiting))
        rows = np.concatenate(rest)
        rest = [rows[size:]]
        yield rows[:size]


def _ordered(rows: Rows) -> Rows:
    return np.take(rows, order_of(rows["key"].copy()))


def _gathered(blocks: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Join blocks to parts of `size` rows; the last one may have fewer."""
    held: list[Rows] = []
    num_held = 0
    for block in blocks:
        at = 0
        while at < len(block):
            part = block[at : at + size - num_held]
            held.append(part)
            at, num_held = at + len(part), num_held + len(part)
            if num_held == size:
                yield np.concatenate(held)
                held, num_held = [], 0
    if held:
        yield np.concatenate(held)


@dataclass
class _Run:
    """Sorted rows in a file, of which a piece is in memory; the file goes when all of it is read."""

    file: Path
    dtype: np.dtype[Any]
    num_rows: int
    read: int = 0
    piece: Rows = field(default_factory=lambda: np.empty(0))

    @classmethod
    def write(cls, file: Path, rows: Rows) -> "_Run":
        rows.tofile(file)
        return cls(file, rows.dtype, len(rows))

    @property
    def is_last(self) -> bool:
        return self.read == self.num_rows

    def refill(self, size: int) -> None:
        """Have a piece of up to `size` rows, unless there is one or nothing is left."""
        if len(self.piece) or self.is_last:
            return
        take = min(size, self.num_rows - self.read)
        self.piece = np.fromfile(self.file, self.dtype, take, offset=self.read * self.dtype.itemsize)
        self.read += take
        if self.is_last:
            self.file.unlink()

    def take(self, key: np.uint64, side: Literal["left", "right"]) -> Rows:
        """Take the rows of the piece whose key is at most `key` ("right"), or below it ("left")."""
        at = int(np.searchsorted(self.piece["key"], key, side=side))
        taken, self.piece = self.piece[:at], self.piece[at:]
        return taken


def _merged(runs: list[_Run], size: int) -> Iterator[Rows]:
    while True:
        for run in runs:
            run.refill(size)
        runs = [run for run in runs if len(run.piece)]
        if not runs:
            return
        open_ends = {place: run.piece["key"][-1] for place, run in enumerate(runs) if not run.is_last}
        key = min(open_ends.values()) if open_ends else max(run.piece["key"][-1] for run in runs)
        # Of the first run that may have more of this key the rest comes before those of later runs.
        first = next((place for place, last in open_ends.items() if last == key), len(runs))
        taken = np.concatenate(
            [run.take(key, "right" if place <= first else "left") for place, run in enumerate(runs)]
        )
        yield taken if len(runs) == 1 else _ordered(taken)
