"""Order sequences so that every source keeps its share: in a packing's window, and where they are shuffled.

Sequence k of a packing's window has the place in the plan of its token at the fractional part of k × φ, so
that a kind of sequences is as dense along the plan as its tokens are; of the next by place the one follows
that brings the sources' tokens nearest to the plan's. docs/packing.md says why, and has measurements.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackingManifest
from tokmill.tasks.formats.packed.pieces import PieceTable
from tokmill.tasks.kernels.bin_packing import InPlan, Parts, line_up
from tokmill.tasks.kernels.radix import order_of
from tokmill.tasks.mixing.permutation import permutation, permutation_key
from tokmill.tasks.packing.params import MOST_WINDOW

LOOK_AHEAD = 256
LONGEST_WAIT = 8 * LOOK_AHEAD
_SHUFFLE_LOOK_AHEAD = 64
_FRACTION = (5**0.5 - 1) / 2  # of the golden ratio, whose multiples are spread evenly
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the same of 2^64
_LARGEST_PART = 0.25  # of a window in one document, above which `tokmill run` warns
_CURRICULUM_WINDOWS = 32
_MOST_CELLS = 1 << 21


def lined_up(
    lengths: NDArray[np.int64], bins: NDArray[np.int64], source: NDArray[np.int64], capacity: int
) -> NDArray[np.int64]:
    """The position of each bin among the sequences of its window: a permutation, [number of bins].

    `lengths`, `bins` and `source` [n] are those of the window's pieces, in the plan's order.
    """
    by_bin = order_of(bins.astype(np.uint64))
    by_place = np.argsort(_places(lengths, by_bin, np.cumsum(np.bincount(bins))), kind="stable")
    ranks = np.argsort(by_place)
    if len(ranks) < 2 or int(np.min(source)) == int(np.max(source)):
        return ranks
    plan = InPlan(np.cumsum(lengths), source)
    lined = _line_up_sources(lengths, ranks[bins], source, plan, capacity, LOOK_AHEAD)
    return np.argsort(by_place[lined])


def _places(
    lengths: NDArray[np.int64], order: NDArray[np.uint32], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The place in the plan of the chosen token of each bin: [number of bins]."""
    begins = (np.cumsum(lengths) - lengths)[order]
    sums = np.concatenate([[0], np.cumsum(lengths[order])])
    firsts = np.concatenate([[0], ends[:-1]])
    filled = (sums[ends] - sums[firsts]).astype(np.uint64)
    fractions = (np.arange(len(ends), dtype=np.uint64) * _GOLDEN) >> np.uint64(32)
    chosen = sums[firsts] + (fractions * filled >> np.uint64(32)).astype(np.int64)
    piece = np.searchsorted(sums, chosen, side="right") - 1
    places: NDArray[np.int64] = begins[piece] + chosen - sums[piece]
    return places


def _line_up_sources(
    lengths: NDArray[np.int64],
    sequence: NDArray[np.int64],
    source: NDArray[np.int64],
    plan: InPlan,
    capacity: int,
    look_ahead: int,
) -> NDArray[np.int64]:
    """The order of sequences, numbered as they arrive, in which the sources' tokens follow a plan of them.

    `lengths`, `sequence` and `source` [n] are those of the pieces; the next sequence is chosen among
    `look_ahead`.
    """
    num_sources, num_sequences = int(np.max(source)) + 1, int(np.max(sequence)) + 1
    keys, which = np.unique(sequence * num_sources + source, return_inverse=True)
    tokens = np.zeros(len(keys), dtype=np.int64)
    np.add.at(tokens, which, lengths)
    firsts = np.searchsorted(keys, np.arange(num_sequences + 1) * num_sources)
    lined = np.empty(num_sequences, dtype=np.int64)
    waiting, arrived = np.empty((2, look_ahead), dtype=np.int64)
    surplus, coming = np.zeros((2, num_sources))
    parts = Parts(firsts, keys % num_sources, tokens)
    line_up(parts, plan, capacity, LONGEST_WAIT, waiting, arrived, surplus, coming, lined)
    return lined


@dataclass(frozen=True)
class Closed:
    """The pieces of a block of documents, in order of sequence, then of start."""

    pieces: PieceTable
    num_closed: int  # sequences below this number get no more pieces
    position: int  # tokens of the run up to the end of the block


def window_of(wanted: int, mixture: Mixture, sequence_length: int) -> int:
    """The window in sequences: as wanted, but with a curriculum at most 1/32 of the run."""
    if not mixture.manifest.curriculum:
        return wanted
    return min(wanted, mixture.manifest.num_tokens // sequence_length // _CURRICULUM_WINDOWS)


def long_warnings(longest: int, manifest: PackingManifest) -> list[str]:
    """A warning if a document of `longest` tokens fills a large part of a window, and a larger one helps."""
    window, its = manifest.shuffle_window or 0, -(-longest // manifest.sequence_length)
    cuts = manifest.strategy == "concat" or manifest.long_documents == "split"
    if not (cuts and 2 <= window < 2 * manifest.num_sequences // 3 and its > _LARGEST_PART * window):
        return []
    return [
        f"pack: a document of {longest} tokens is {its} sequences long, and shuffle_window={window}: where "
        "it lies, it fills many batches; use a larger pack.shuffle_window, e.g. "
        f"{min(MOST_WINDOW, manifest.num_sequences, 8 * its)}"
    ]


class Shuffle:
    """Shuffles the sequences of one packing in windows, unless a window has fewer than two.

    Windows keep their order; a last one of less than half the size is joined to the one before. The very last
    sequence stays last, since it may be the only padded one.
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
            rounding = np.arange(len(sources)) * _FRACTION % 1.0  # equal sources advance in turn
            given = np.floor(passed * np.bincount(source, weights=lengths) + rounding).astype(np.int64)
            steps = np.diff(given, axis=0)
            plan = InPlan(np.cumsum(steps), np.tile(np.arange(len(sources)), len(steps)))
            order = order[
                _line_up_sources(
                    lengths, np.argsort(order)[mine], source, plan, self._length, _SHUFFLE_LOOK_AHEAD
                )
            ]
        sequence = np.argsort(order)[mine]
        by_sequence = np.argsort(sequence, kind="stable")
        moved = PieceTable(*(values[by_sequence] for values in pieces.columns().values()))
        return replace(moved, sequence=(first + sequence[by_sequence]).astype(np.uint32))

    def _passed(self, first: int, size: int, sources: NDArray[np.uint16]) -> NDArray[np.float64]:
        """How much of each source is requested by each point of a window, as fractions: [points, sources].

        A source of which nothing is requested in the window advances evenly.
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

    Each is due at a random fraction, `within`, of its stretch. It counts for the source of an evenly chosen
    token.
    """
    ends = np.cumsum(lengths)
    firsts = np.searchsorted(sequence, np.arange(len(order) + 1))
    bounds = np.concatenate([[0], ends])[firsts]
    chosen = bounds[:-1] + np.diff(bounds) * (np.arange(len(order)) * _FRACTION % 1.0)
    of = source[np.searchsorted(ends, chosen, side="right")][order]
    due = np.empty(len(order))
    points = np.linspace(0.0, 1.0, len(passed))
    for each in range(passed.shape[1]):
        its = np.flatnonzero(of == each)
        due[its] = np.interp((np.arange(len(its)) + within[its]) / max(1, len(its)), passed[:, each], points)
    return due
