"""Sort more rows than fit in memory: write sorted runs to disk, and merge them while reading.

Laws. The sort is stable, whatever the memory, which is three times `memory_rows` while sorting, and at most
`kept_rows` over all runs while merging. Every row is written and read at most once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.kernels.radix import order_of
from tokmill.tokenizer.core.stopping import raise_if_stopped

Rows: TypeAlias = NDArray[Any]  # structured; field "key" is a uint64
MEMORY_ROWS = 1 << 21
BLOCK = 1 << 16


@dataclass(frozen=True)
class Scratch:
    """A folder for sorted runs that do not fit in memory."""

    folder: Path  # nothing else is written to it
    memory_rows: int = MEMORY_ROWS  # rows to sort in memory at a time
    kept_rows: int = MEMORY_ROWS  # the most sorted rows in memory while they are yielded; others are on disk
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
    """Yield the rows of structured arrays by ascending "key", in blocks."""
    runs: list[_Run] = []
    for rows in _gathered(blocks, scratch.memory_rows):
        ordered = _ordered(rows)
        if not runs and len(ordered) < min(scratch.memory_rows, scratch.kept_rows):
            yield from (ordered[at : at + BLOCK] for at in range(0, len(ordered), BLOCK))
            return
        runs.append(_Run(scratch.new_file(), ordered.dtype, len(ordered)))
        ordered.tofile(runs[-1].file)
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
            held.append(block[at : at + size - num_held])
            at, num_held = at + len(held[-1]), num_held + len(held[-1])
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

    def refill(self, size: int) -> None:
        """Load the next block of up to `size` rows, unless one is loaded or the run has ended."""
        if len(self.piece) or self.read == self.num_rows:
            return
        self.piece = np.fromfile(self.file, self.dtype, size, offset=self.read * self.dtype.itemsize)
        self.read += len(self.piece)
        if self.read == self.num_rows:
            self.file.unlink()


def _merged(runs: list[_Run], size: int) -> Iterator[Rows]:
    while True:
        raise_if_stopped()
        for run in runs:
            run.refill(size)
        runs = [run for run in runs if len(run.piece)]
        if not runs:
            return
        lasts = [run.piece["key"][-1] for run in runs]
        open_ends = {k: lasts[k] for k, run in enumerate(runs) if run.read < run.num_rows}
        key = min(open_ends.values()) if open_ends else max(lasts)
        # The first run that may have more rows of this key must yield them before later runs do.
        first = next((k for k, last in open_ends.items() if last == key), len(runs))
        taken = []
        for k, run in enumerate(runs):
            at = int(np.searchsorted(run.piece["key"], key, "right" if k <= first else "left"))
            taken.append(run.piece[:at])
            run.piece = run.piece[at:]
        merged = taken[0] if len(runs) == 1 else _ordered(np.concatenate(taken))
        del taken  # pieces of runs, which would be kept beside the next ones
        yield merged
