"""Shuffle packed sequences within windows, so that a reader who takes them in order has well-mixed batches.

The pieces of a long document are cut one after the other, and so would fill a batch. Within a window of
`pack.shuffle_window` sequences those of each source come in a random order instead, one in each of as many
equal stretches, at a random place in it (in the middle of it, rare sources would come together). Of the
next `LOOK_AHEAD` sequences the one comes first that brings the sources nearest to their shares, as in
`tasks.packing.pieces`. (In a plainly random order some blocks of 64 sequences miss the shares by 20
points.)

Laws. A sequence stays in its window, and windows keep their order. Within a window every source advances as
the mixture requests it there, scaled to the source's tokens in the window. The very last sequence stays last,
since it may be the only padded one. A last window of less than half the size is joined to the one before. The
order depends on the plan and the seed alone.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackingManifest
from tokmill.tasks.formats.packed.pieces import PieceTable
from tokmill.tasks.kernels.alignment import InPlan
from tokmill.tasks.mixing.permutation import permutation, permutation_key
from tokmill.tasks.packing.params import MOST_WINDOW
from tokmill.tasks.packing.pieces import FRACTION, line_up_sources

LOOK_AHEAD = 64
LARGEST_PART = 0.25
"""A part of a window in one document above which `tokmill run` warns: it then fills many batches."""
_CURRICULUM_WINDOWS = 32
_MOST_CELLS = 1 << 21


@dataclass(frozen=True)
class Closed:
    """The pieces of a block of documents, in order of sequence, then of start."""

    pieces: PieceTable  # the pieces
    num_closed: int  # sequences below this number get no more pieces
    position: int  # tokens of the run up to the end of the block


def window_of(asked: int, mixture: Mixture, sequence_length: int) -> int:
    """The window in sequences: as asked, but with a curriculum at most 1/32 of the run, whose order holds."""
    if not mixture.manifest.curriculum:
        return asked
    return min(asked, mixture.manifest.num_tokens // sequence_length // _CURRICULUM_WINDOWS)


def long_warnings(longest: int, manifest: PackingManifest) -> list[str]:
    """A warning if a document of `longest` tokens fills a large part of a window, and a larger one helps."""
    window, its = manifest.shuffle_window or 0, -(-longest // manifest.sequence_length)
    cuts = manifest.strategy == "concat" or manifest.long_documents == "split"
    if not (cuts and 2 <= window < 2 * manifest.num_sequences // 3 and its > LARGEST_PART * window):
        return []
    return [
        f"pack: a document of {longest} tokens is {its} sequences long, and shuffle_window={window}: where "
        "it lies, it fills many batches; use a larger pack.shuffle_window, e.g. "
        f"{min(MOST_WINDOW, manifest.num_sequences, 8 * its)}"
    ]


class Shuffle:
    """Shuffles the sequences of one packing.

    Args:
        mixture: the mixture that is packed.
        window: sequences per window; the order is kept if there are fewer than two.
        seed: seed of the order.
        sequence_length: tokens per sequence.
    """

    def __init__(self, mixture: Mixture, window: int, seed: int, sequence_length: int) -> None:
        self._window, self._seed, self._length = window, seed, sequence_length
        self._request = mixture.request() or mixture.shares()
        self._ends, self._positions = [0], [float(mixture.manifest.first_position)]
        self._number = 0

    def run(self, blocks: Iterable[Closed]) -> Iterator[tuple[PieceTable, int]]:
        """Yield the pieces of windows in their new order, and the number of sequences closed by then."""
        if self._window < 2:
            yield from ((block.pieces, block.num_closed) for block in blocks)
            return
        waiting, first, most = list[PieceTable](), 0, self._window + (self._window + 1) // 2
        for block in blocks:
            waiting.append(block.pieces)
            self._ends.append(block.num_closed)
            self._positions.append(float(block.position))
            if block.num_closed - first < most:
                continue
            pieces = PieceTable.joined(waiting)
            while block.num_closed - first >= most:
                first += self._window
                end = int(np.searchsorted(pieces.sequence, first))
                yield self._shuffled(pieces.rows(0, end)), first
                pieces = pieces.rows(end, len(pieces))
            waiting = [pieces]
            passed = bisect_right(self._ends, first) - 1
            del self._ends[:passed], self._positions[:passed]
        pieces = PieceTable.joined(waiting)
        if len(pieces):
            last = int(pieces.sequence[-1])
            end = int(np.searchsorted(pieces.sequence, last))
            yield self._shuffled(pieces.rows(0, end)), last
            yield pieces.rows(end, len(pieces)), last + 1

    def _shuffled(self, pieces: PieceTable) -> PieceTable:
        """One window's pieces in their new order."""
        if not len(pieces):
            return pieces
        first, size = int(pieces.sequence[0]), int(pieces.sequence[-1] - pieces.sequence[0]) + 1
        mine, lengths = pieces.sequence.astype(np.int64) - first, pieces.length.astype(np.int64)
        sources, source = np.unique(pieces.source, return_inverse=True)
        passed = self._passed(first, size, sources)
        order = permutation(size, permutation_key("pack", self._seed, self._number))
        within = permutation(size, permutation_key("pack", self._seed, self._number, "within")) / size
        self._number += 1
        order = order[np.argsort(_due(mine, lengths, source, order, within, passed), kind="stable")]
        if len(sources) > 1:
            rounding = np.arange(len(sources)) * FRACTION % 1.0  # so that equal sources advance in turn
            given = np.floor(passed * np.bincount(source, weights=lengths) + rounding).astype(np.int64)
            steps = np.diff(given, axis=0)
            plan = InPlan(np.cumsum(steps), np.tile(np.arange(len(sources)), len(steps)))
            order = order[
                line_up_sources(lengths, np.argsort(order)[mine], source, plan, self._length, LOOK_AHEAD)
            ]
        sequence = np.argsort(order)[mine]
        by_sequence = np.argsort(sequence, kind="stable")
        moved = PieceTable(*(values[by_sequence] for values in pieces.columns().values()))
        return replace(moved, sequence=(first + sequence[by_sequence]).astype(np.uint32))

    def _passed(self, first: int, size: int, sources: NDArray[np.uint16]) -> NDArray[np.float64]:
        """How much of each source comes by each point of a window, as fractions: [points, sources].

        It follows the request. A source of which nothing is requested in the window advances evenly.
        """
        steps = min(size, max(1, _MOST_CELLS // len(sources)))
        even = np.repeat(np.linspace(0.0, 1.0, steps + 1)[:, None], len(sources), axis=1)
        at = np.interp(first + even[:, 0] * size, self._ends, self._positions)
        requested = self._request.along(at)[:, sources]
        begun = requested - requested[0]
        nothing = begun[-1] < 1
        passed: NDArray[np.float64] = np.where(nothing, even, begun / np.where(nothing, 1.0, begun[-1]))
        return passed


def _due(
    sequence: NDArray[np.int64],
    lengths: NDArray[np.int64],
    source: NDArray[np.int64],
    order: NDArray[np.int64],
    within: NDArray[np.float64],
    passed: NDArray[np.float64],
) -> NDArray[np.float64]:
    """When each sequence, in a random order, is due: those of each source evenly along its advance.

    Each is due `within` its stretch of the advance, at a fraction of it that is random, too.
    A sequence counts for the source of one of its tokens, which is chosen evenly (`pieces.FRACTION`).
    """
    ends = np.cumsum(lengths)
    firsts = np.searchsorted(sequence, np.arange(len(order) + 1))
    bounds = np.concatenate([[0], ends])[firsts]
    chosen = bounds[:-1] + np.diff(bounds) * (np.arange(len(order)) * FRACTION % 1.0)
    of = source[np.searchsorted(ends, chosen, side="right")][order]
    due = np.empty(len(order))
    points = np.linspace(0.0, 1.0, len(passed))
    for each in range(passed.shape[1]):
        its = np.flatnonzero(of == each)
        due[its] = np.interp((np.arange(len(its)) + within[its]) / max(1, len(its)), passed[:, each], points)
    return due
