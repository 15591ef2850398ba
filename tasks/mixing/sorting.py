"""Sort more rows than fit in memory: write sorted runs to disk, and merge them while reading.

The model. Rows arrive in blocks and are collected up to `memory_rows`; these are sorted and written to a
scratch file as one run. Reading merges the runs block by block: memory holds a block of each run, and all
rows up to the smallest of the blocks' last keys can be yielded. A single partial run stays in memory.

Laws. The output has the same rows as the input. The sort is stable, whatever the memory. Memory: three times
`memory_rows` while sorting, at most `kept_rows` over all runs while merging. Every row is written and read at
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
from tokmill.tokenizer.core.stopping import raise_if_stopped

Rows: TypeAlias = NDArray[Any]  # structured; field "key" is a uint64
MEMORY_ROWS = 1 << 21
BLOCK = 1 << 16


@dataclass(frozen=True)
class Scratch:
    """A folder for sorted runs that do not fit in memory.

    Attributes:
        folder: an existing folder to which nothing else is written.
        memory_rows: rows to sort in memory at a time.
        kept_rows: the most sorted rows in memory while they are yielded; more are written to disk even if
            they are one run.
    """

    folder: Path
    memory_rows: int = MEMORY_ROWS
    kept_rows: int = MEMORY_ROWS
    _names: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    def new_file(self) -> Path:
        """The path of a new file."""
        return self.folder / f"{next(self._names)}.rows"


@contextmanager
def scratch_below(out: Path, num_sorters: int) -> Iterator[Scratch]:
    """Yield a scratch folder in `out`, deleted in the end, that `num_sorters` use at the same time."""
    folder = out / ".scratch"
    folder.mkdir()
    try:
        yield Scratch(folder, kept_rows=MEMORY_ROWS // max(1, num_sorters))
    finally:
        rmtree(folder)


def sorted_rows(blocks: Iterable[Rows], scratch: Scratch) -> Iterator[Rows]:
    """Yield all rows by ascending key, in blocks.

    Args:
        blocks: arrays of one structured dtype with a field "key".
        scratch: folder for runs.
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
    """Yield the same rows in blocks of these sizes, which must add up to the number of rows."""
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
    """Join blocks into parts of `size` rows; the last one may have fewer."""
    held: list[Rows] = []
    num_held = 0
    for block in blocks:
        raise_if_stopped()
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
    """A file of sorted rows, with one block of it in memory; deleted when all of it is read."""

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
        """Load the next block of up to `size` rows, unless one is loaded or the run has ended."""
        if len(self.piece) or self.is_last:
            return
        take = min(size, self.num_rows - self.read)
        self.piece = np.fromfile(self.file, self.dtype, take, offset=self.read * self.dtype.itemsize)
        self.read += take
        if self.is_last:
            self.file.unlink()

    def take(self, key: np.uint64, side: Literal["left", "right"]) -> Rows:
        """Take the rows of the loaded block with keys up to `key` ("right"), or below it ("left")."""
        at = int(np.searchsorted(self.piece["key"], key, side=side))
        taken, self.piece = self.piece[:at], self.piece[at:]
        return taken


def _merged(runs: list[_Run], size: int) -> Iterator[Rows]:
    while True:
        raise_if_stopped()
        for run in runs:
            run.refill(size)
        runs = [run for run in runs if len(run.piece)]
        if not runs:
            return
        open_ends = {place: run.piece["key"][-1] for place, run in enumerate(runs) if not run.is_last}
        key = min(open_ends.values()) if open_ends else max(run.piece["key"][-1] for run in runs)
        # The first run that may have more rows of this key must yield them before later runs do.
        first = next((place for place, last in open_ends.items() if last == key), len(runs))
        taken = np.concatenate(
            [run.take(key, "right" if place <= first else "left") for place, run in enumerate(runs)]
        )
        yield taken if len(runs) == 1 else _ordered(taken)
