"""Order the sequences of a window so that every source keeps its share.

Sequences arrive in the order of their places and wait. The next one is chosen among the waiting ones so that
the tokens of each source, counted from the window's beginning, come nearest to those of the plan at the same
position, by the sum of squared differences over the sources. Waiting is bounded, so the order stays close to
that of the places.

Source: error diffusion, as in Floyd and Steinberg 1976, with a choice of what comes next.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64


class Parts(NamedTuple):
    """The tokens per source of n sequences, which are numbered in the order of their places.

    Attributes:
        firsts: int64 [n + 1]; sequence k has the parts [firsts[k], firsts[k + 1]), one for each source in it.
        sources: int64 [p], the source of each part.
        tokens: int64 [p], its tokens; at least 1.
    """

    firsts: Int64
    sources: Int64
    tokens: Int64


class InPlan(NamedTuple):
    """The same tokens in the order of the plan.

    Attributes:
        ends: int64 [q], where each piece ends, counted in tokens; ascending.
        sources: int64 [q], the source of each piece.
    """

    ends: Int64
    sources: Int64


class Waiting(NamedTuple):
    """Buffers for the waiting sequences and the turn of each's arrival; int64 [w] each, overwritten."""

    sequences: Int64
    arrived: Int64


class Sums(NamedTuple):
    """Tokens of each source; float64 [number of sources] each, zeros; overwritten.

    Attributes:
        surplus: tokens given so far, less those of the plan up to the same position.
        coming: tokens that the plan gives next.
    """

    surplus: NDArray[np.float64]
    coming: NDArray[np.float64]


@kernel
def line_up(
    parts: Parts, plan: InPlan, capacity: int, longest_wait: int, waiting: Waiting, sums: Sums, lined: Int64
) -> None:
    """Decide the order of sequences.

    Args:
        parts: of n sequences.
        plan: of the same tokens.
        capacity: tokens of a sequence.
        longest_wait: the most sequences that may overtake a waiting one.
        waiting: empty; overwritten.
        sums: zeros; overwritten.
        lined: int64 [n], written: the sequences in their order. Ties go to the first one.
    """
    num_waiting, num_come = 0, 0
    near, near_at, far, far_at = 0, 0, 0, 0
    for turn in range(len(lined)):
        while num_waiting < len(waiting.sequences) and num_come < len(lined):
            waiting.sequences[num_waiting] = num_come
            waiting.arrived[num_waiting] = turn
            num_waiting += 1
            num_come += 1
        far, far_at = _walk(plan, far, far_at, near_at + capacity, sums.coming, 1.0)
        chosen = 0
        if turn - waiting.arrived[0] < longest_wait:
            chosen = _nearest(parts, waiting.sequences, num_waiting, sums)
        current = waiting.sequences[chosen]
        num_waiting -= 1
        for k in range(chosen, num_waiting):
            waiting.sequences[k] = waiting.sequences[k + 1]
            waiting.arrived[k] = waiting.arrived[k + 1]
        lined[turn] = current
        filled = 0
        for part in range(parts.firsts[current], parts.firsts[current + 1]):
            sums.surplus[parts.sources[part]] += parts.tokens[part]
            filled += parts.tokens[part]
        _walk(plan, near, near_at, near_at + filled, sums.surplus, -1.0)
        near, near_at = _walk(plan, near, near_at, near_at + filled, sums.coming, -1.0)


@kernel(inline=True)
def _walk(
    plan: InPlan, piece: int, at: int, goal: int, sums: NDArray[np.float64], sign: float
) -> tuple[int, int]:
    """Add the plan's tokens [at, goal) to the sums of their sources; return the piece and place reached."""
    while at < goal and piece < len(plan.ends):
        stop = min(plan.ends[piece], goal)
        sums[plan.sources[piece]] += sign * (stop - at)
        at = stop
        if at == plan.ends[piece]:
            piece += 1
    return piece, at


@kernel(inline=True)
def _nearest(parts: Parts, waiting: Int64, num_waiting: int, sums: Sums) -> int:
    """The waiting sequence that leaves the least sum of squared surpluses, once the plan gives `coming`."""
    total, squares, product = 0.0, 0.0, 0.0
    for source in range(len(sums.coming)):
        total += sums.coming[source]
    for source in range(len(sums.coming)):
        share = sums.coming[source] / total
        squares += share * share
        product += share * sums.surplus[source]
    best, least = 0, np.inf
    for k in range(num_waiting):
        first, stop = parts.firsts[waiting[k]], parts.firsts[waiting[k] + 1]
        filled, found = 0.0, 0.0
        for part in range(first, stop):
            filled += parts.tokens[part]
        for part in range(first, stop):
            source, size = parts.sources[part], float(parts.tokens[part])
            given = filled * sums.coming[source] / total
            found += size * (size + 2.0 * (sums.surplus[source] - given))
        found += filled * (filled * squares - 2.0 * product)
        if found < least:
            best, least = k, found
    return best
