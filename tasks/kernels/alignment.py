"""Order the sequences of a window so that every source keeps its share.

Sequences arrive in the order of their places and wait. The next one is chosen among the waiting ones so that
the tokens of each source, counted from the window's beginning, come nearest to those of the plan at the same
position, by the sum of squared differences: error diffusion, as in Floyd and Steinberg 1976, with a choice of
what comes next.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Float64, Int64


class Parts(NamedTuple):
    """The tokens per source of n sequences, which are numbered in the order of their places."""

    firsts: Int64  # [n + 1]; sequence k has the parts [firsts[k], firsts[k + 1]), one for each source in it
    sources: Int64  # [p], the source of each part
    tokens: Int64  # [p], its tokens; at least 1


class InPlan(NamedTuple):
    """The same tokens in the order of the plan."""

    ends: Int64  # [q], where each piece ends, counted in tokens; ascending
    sources: Int64  # [q], the source of each piece


@kernel
def line_up(  # noqa: PLR0913, PLR0917
    parts: Parts,
    plan: InPlan,
    capacity: int,
    longest_wait: int,
    waiting: Int64,
    arrived: Int64,
    surplus: Float64,
    coming: Float64,
    lined: Int64,
) -> None:
    """Decide the order of sequences of `capacity` tokens; at most `longest_wait` may overtake a waiting one.

    Writes `lined` [n], the sequences in their order; ties go to the first one. Scratch: `waiting` and the
    turn of each's arrival, [w]; by source, zeros, the tokens given beyond those of the plan, and those that
    it gives next.
    """
    num_waiting, num_come = 0, 0
    near, near_at, far, far_at = 0, 0, 0, 0
    for turn in range(len(lined)):
        while num_waiting < len(waiting) and num_come < len(lined):
            waiting[num_waiting] = num_come
            arrived[num_waiting] = turn
            num_waiting += 1
            num_come += 1
        far, far_at = _walk(plan, far, far_at, near_at + capacity, coming, 1.0)
        chosen = 0
        if turn - arrived[0] < longest_wait:
            chosen = _nearest(parts, waiting, num_waiting, surplus, coming)
        current = waiting[chosen]
        num_waiting -= 1
        for k in range(chosen, num_waiting):
            waiting[k] = waiting[k + 1]
            arrived[k] = arrived[k + 1]
        lined[turn] = current
        filled = 0
        for part in range(parts.firsts[current], parts.firsts[current + 1]):
            surplus[parts.sources[part]] += parts.tokens[part]
            filled += parts.tokens[part]
        _walk(plan, near, near_at, near_at + filled, surplus, -1.0)
        near, near_at = _walk(plan, near, near_at, near_at + filled, coming, -1.0)


@kernel(inline=True)
def _walk(plan: InPlan, piece: int, at: int, goal: int, sums: Float64, sign: float) -> tuple[int, int]:
    """Add the plan's tokens [at, goal) to the sums of their sources; return the piece and place reached."""
    while at < goal and piece < len(plan.ends):
        stop = min(plan.ends[piece], goal)
        sums[plan.sources[piece]] += sign * (stop - at)
        at = stop
        if at == plan.ends[piece]:
            piece += 1
    return piece, at


@kernel(inline=True)
def _nearest(parts: Parts, waiting: Int64, num_waiting: int, surplus: Float64, coming: Float64) -> int:
    """The waiting sequence that leaves the least sum of squared surpluses, once the plan gives `coming`."""
    total, squares, product = 0.0, 0.0, 0.0
    for source in range(len(coming)):
        total += coming[source]
    for source in range(len(coming)):
        share = coming[source] / total
        squares += share * share
        product += share * surplus[source]
    best, least = 0, np.inf
    for k in range(num_waiting):
        first, stop = parts.firsts[waiting[k]], parts.firsts[waiting[k] + 1]
        filled, found = 0.0, 0.0
        for part in range(first, stop):
            filled += parts.tokens[part]
        for part in range(first, stop):
            source, size = parts.sources[part], float(parts.tokens[part])
            given = filled * coming[source] / total
            found += size * (size + 2.0 * (surplus[source] - given))
        found += filled * (filled * squares - 2.0 * product)
        if found < least:
            best, least = k, found
    return best
