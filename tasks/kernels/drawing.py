"""Draw documents under a curriculum: a race among the eligible ones.

Each eligible document that is left is equally likely to be next: while x advances by dx tokens, with a
probability of dx / U(x), where U is the number of such tokens. With H the integral of 1 / U, a document that
becomes eligible at r is drawn at the time v with H(v) = H(r) + E, E exponentially distributed. Sorting
documents by v has the distribution of drawing one by one. The random numbers of k copies come from k equal
parts of the interval, so that copies are spread evenly; if all is eligible from the beginning, they are
epochs.

The logarithm is computed from sums, products and quotients only, so that it is the same on every machine.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Float64, Int64, UInt32, UInt64In

KINDS = ("linear", "sqrt", "exp", "step")
_LINEAR, _SQRT, _EXP, _ = range(4)
_LN2 = 0.6931471805599453
_LEAST_LEFT = 2.0**-54
_TINY = 1e-12  # relative distance at which a value counts as on a stair, or a time as come


class Rule(NamedTuple):
    """A competence function (`tasks.mixing.curves`)."""

    kind: int  # index in `KINDS`
    start: float  # eligible part at the beginning
    until: float  # progress at which it stops growing
    stairs: int
    most: float  # eligible part at the end


class Course(NamedTuple):
    """The request of one source over a run of k segments, and its H at p + 1 places."""

    knots: Float64  # [k + 1], tokens of the run where segments begin and end
    firsts: Float64  # [k], the source's share at each segment's start
    lasts: Float64  # [k], at its end
    sums: Float64  # [k + 1], tokens requested of the source before each segment, and after the last
    places: Float64  # [p + 1], tokens of the source, never falling
    hazards: Float64  # [p + 1], H there, never falling


@kernel
def draw_times(
    parts: Float64,
    lots: UInt64In,
    copy: int,
    copies: int,
    rule: Rule,
    course: Course,
    releases: Float64,
    times: Float64,
) -> None:
    """Compute when documents become eligible and are drawn, in tokens of their source.

    `parts` [n] are the parts of the source's tokens before each document, by difficulty, and `lots` [n]
    random numbers. Writes `releases` [n], infinite for documents that never become eligible, and `times` [n].
    """
    end = len(course.places) - 1
    run = course.knots[len(course.knots) - 1]
    for k in range(len(parts)):
        progress = _release(rule, parts[k])
        if progress > 1:
            releases[k] = np.inf
            times[k] = np.inf
            continue
        release = _requested(course, progress * run)
        lot = (np.float64(lots[k] >> np.uint64(11)) + 0.5) / 9007199254740992.0
        hazard = _between(course.places, course.hazards, _find(course.places, release), release)
        # In the last copy the largest random numbers round to 1, and the logarithm's argument to 0. All other
        # arguments are at least 2^-53.
        hazard -= logarithm(max(1 - (copy + lot) / copies, _LEAST_LEFT))
        if hazard >= course.hazards[end]:
            time = course.places[end] * (1 + hazard - course.hazards[end])
        else:
            time = _between(course.hazards, course.places, _find(course.hazards, hazard), hazard)
        releases[k] = release
        times[k] = max(time, release)


@kernel(inline=True)
def _requested(course: Course, position: float) -> float:
    """Tokens requested of the source up to a position of the run."""
    at = _find(course.knots, position)
    passed = position - course.knots[at]
    slope = (course.lasts[at] - course.firsts[at]) / (course.knots[at + 1] - course.knots[at])
    return course.sums[at] + passed * (course.firsts[at] + slope * passed / 2)


@kernel(inline=True)
def _release(rule: Rule, part: float) -> float:
    """The progress from which a part is eligible; 2 if it never is."""
    if part <= rule.start:
        return 0.0
    if part > rule.most:
        return 2.0
    start = rule.start
    if rule.kind == _LINEAR:
        return rule.until * (part - start) / (1 - start)
    if rule.kind == _SQRT:
        return rule.until * (part * part - start * start) / (1 - start * start)
    if rule.kind == _EXP:
        return rule.until * -logarithm((1 - part) / (1 - start)) / 3
    stair = np.ceil((part - start) / (1 - start) * (rule.stairs - 1) - _TINY)
    return rule.until * stair / rule.stairs


@kernel(inline=True)
def _find(values: Float64, value: float) -> int:
    """The last k below the last one with values[k] <= value; 0 if there is none."""
    low, high = 0, len(values) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@kernel(inline=True)
def _between(xs: Float64, ys: Float64, at: int, x: float) -> float:
    """The value at x of the line from point `at` to the next."""
    width = xs[at + 1] - xs[at]
    if width <= 0:
        return ys[at + 1]
    return ys[at] + (ys[at + 1] - ys[at]) * (x - xs[at]) / width


@kernel(inline=True)
def logarithm(x: float) -> float:
    """The natural logarithm of x, exact to 15 digits; -inf for 0, NaN for negative x."""
    if not 0.0 < x < np.inf:
        return -np.inf if x == 0.0 else np.inf if x > 0.0 else np.nan
    exponent = 0
    while x >= 2.0:
        x *= 0.5
        exponent += 1
    while x < 1.0:
        x *= 2.0
        exponent -= 1
    if x > 1.4142135623730951:
        x *= 0.5
        exponent += 1
    y = (x - 1) / (x + 1)
    square = y * y
    total = 0.0
    for k in range(12, -1, -1):
        total = total * square + 1.0 / (2 * k + 1)
    return exponent * _LN2 + 2 * y * total


@kernel
def hand_out(  # noqa: PLR0913, PLR0917
    lengths: UInt32,
    releases: Float64,
    times: Float64,
    num_waiting: int,
    over: bool,
    now: Float64,
    early: Int64,
    ready: Int64,
    out: Int64,
) -> tuple[int, int]:
    """Give out n documents in order of their draw times, but none before it is eligible.

    Giving one out advances the time by its tokens, so that it deviates a little from the draw times. A
    document whose turn comes too early waits, and then precedes all later ones.

    The first `num_waiting` documents wait already; the others come by ascending time, and are the last ones
    if it is `over`. `now` [1] are the tokens given out before. Writes `out` [n], the documents given out, and
    two heaps [n]: those that wait, by release, and those that have become eligible, by time. Returns the
    numbers of documents given out, and of those that wait.
    """
    num_early, num_ready, handed, arrived = 0, 0, 0, num_waiting
    for k in range(num_waiting):
        num_early = _push(early, releases, num_early, k)
    while True:
        # differences below one token are rounding errors
        while num_early and releases[early[0]] <= now[0] * (1 + _TINY) + 0.5:
            num_ready = _push(ready, times, num_ready, early[0])
            num_early = _pop(early, releases, num_early)
        if num_ready:
            document = ready[0]
            num_ready = _pop(ready, times, num_ready)
        elif arrived < len(times):
            document = arrived
            arrived += 1
            if releases[document] > now[0] * (1 + _TINY) + 0.5:
                num_early = _push(early, releases, num_early, document)
                continue
        elif over and num_early:
            # All eligible documents are out: give the next one to become eligible. Only rounding leads here.
            document = early[0]
            num_early = _pop(early, releases, num_early)
        else:
            return handed, num_early
        out[handed] = document
        now[0] += lengths[document]
        handed += 1


@kernel(inline=True)
def _push(heap: Int64, keys: Float64, size: int, value: int) -> int:
    """Put a value into a heap whose smallest key is first; return its size."""
    at = size
    while at > 0 and keys[heap[(at - 1) // 2]] > keys[value]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = value
    return size + 1


@kernel(inline=True)
def _pop(heap: Int64, keys: Float64, size: int) -> int:
    """Remove the value with the smallest key from a heap; return its size."""
    size -= 1
    value = heap[size]
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[value]:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = value
    return size
