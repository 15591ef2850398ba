"""Order the sequences of a window so that the mixture's shares also hold within the window.

Packing a window puts many short documents into some sequences, and a single long one into others. Ordered by
their first documents, the sequences of short documents would all come first, and so would the sources of
these documents. So two rules decide the order.

    place       A sequence has the place of one of its tokens in the plan. The token is chosen
                evenly: sequence k, in the order in which they were opened, takes its token at the fractional
                part of k × φ. So a kind of sequences is as dense along the plan as its tokens are there. (The
                mean place of its tokens would put every sequence of many documents in the middle.)
    line up     Of the next `LOOK_AHEAD` sequences by place, the one follows that brings the sources' tokens
                nearest to those of the plan at that point (`tasks.kernels.lining_up`). No sequence is
                overtaken by more than `LONGEST_WAIT` others.

Both are functions of lengths and sources alone. docs/packing.md has measurements of these and of other
orders.
"""

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.kernels.fitting import by_sequence
from tokmill.tasks.kernels.lining_up import InPlan, Parts, Sums, Waiting, line_up
from tokmill.tasks.packing.pieces import UnplacedPieces

LOOK_AHEAD = 256
LONGEST_WAIT = 8 * LOOK_AHEAD
FRACTION = (5**0.5 - 1) / 2
"""The golden ratio's fraction, whose multiples are spread evenly."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio's fraction of 2^64


def lined_up(
    cut: UnplacedPieces, bins: NDArray[np.int64], source: NDArray[np.int64], capacity: int
) -> NDArray[np.int64]:
    """The position of each bin among the sequences of its window.

    Args:
        cut: the window's pieces, in the plan's order.
        bins: int64 [n], the bin of each.
        source: int64 [n], the source of each piece.
        capacity: tokens of a sequence; below 2^32.

    Returns:
        int64 [number of bins], a permutation.
    """
    num_bins = int(np.max(bins, initial=-1)) + 1
    order, counts = np.empty_like(bins), np.zeros(num_bins + 1, dtype=np.int64)
    by_sequence(bins, counts, order)
    by_place = np.argsort(_places(cut.length, order, counts[:num_bins]), kind="stable")
    ranks = np.empty(num_bins, dtype=np.int64)
    ranks[by_place] = np.arange(num_bins)
    if num_bins < 2 or int(np.min(source)) == int(np.max(source)):
        return ranks
    plan = InPlan(np.cumsum(cut.length), source)
    lined = line_up_sources(cut.length, ranks[bins], source, plan, capacity, LOOK_AHEAD)
    ranks[by_place[lined]] = np.arange(num_bins)
    return ranks


def _places(
    lengths: NDArray[np.int64], order: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The place in the plan of the chosen token of each bin: int64 [number of bins].

    Args:
        lengths: int64 [n], lengths of the pieces in the plan's order.
        order: int64 [n], the pieces, bin by bin.
        ends: int64 [number of bins], index in `order` at which each bin's pieces end.
    """
    begins = (np.cumsum(lengths) - lengths)[order]
    sums = np.concatenate([[0], np.cumsum(lengths[order])])
    firsts = np.concatenate([[0], ends[:-1]])
    filled = (sums[ends] - sums[firsts]).astype(np.uint64)
    fractions = (np.arange(len(ends), dtype=np.uint64) * _GOLDEN) >> np.uint64(32)
    chosen = sums[firsts] + (fractions * filled >> np.uint64(32)).astype(np.int64)
    piece = np.searchsorted(sums, chosen, side="right") - 1
    places: NDArray[np.int64] = begins[piece] + chosen - sums[piece]
    return places


def line_up_sources(
    lengths: NDArray[np.int64],
    sequence: NDArray[np.int64],
    source: NDArray[np.int64],
    plan: InPlan,
    capacity: int,
    look_ahead: int,
) -> NDArray[np.int64]:
    """Order sequences so that the tokens of each source follow a plan: int64 [number of sequences].

    Args:
        lengths: int64 [n], lengths of the pieces.
        sequence: int64 [n], the sequence of each piece, numbered in the order in which they arrive.
        source: int64 [n], the source of each piece.
        plan: the same tokens in the order to follow.
        capacity: tokens of a sequence.
        look_ahead: number of waiting sequences among which the next one is chosen.
    """
    num_sources = int(np.max(source)) + 1
    parts, which = np.unique(sequence * num_sources + source, return_inverse=True)
    tokens = np.zeros(len(parts), dtype=np.int64)
    np.add.at(tokens, which, lengths)
    num_sequences = int(np.max(sequence)) + 1
    lined = np.empty(num_sequences, dtype=np.int64)
    line_up(
        Parts(
            np.searchsorted(parts, np.arange(num_sequences + 1) * num_sources), parts % num_sources, tokens
        ),
        plan,
        capacity,
        LONGEST_WAIT,
        Waiting(*(np.empty(look_ahead, dtype=np.int64) for _ in range(2))),
        Sums(*(np.zeros(num_sources) for _ in range(2))),
        lined,
    )
    return lined
