"""Compute when documents are drawn under a curriculum: a race among the eligible documents.

Each eligible document that has not been drawn is equally likely to be next. So the probability that a
document is drawn while x advances by dx tokens is dx / U(x), where U(x) is the number of eligible tokens not
yet drawn. With H the integral of 1 / U, a document that becomes eligible at r is drawn at the time v with
H(v) = H(r) + E, where E is exponentially distributed. Sorting documents by v gives the same distribution of
orders as drawing one by one, without a list of the eligible ones. If every document is drawn k times, the
random numbers of its copies come from k equal parts of the interval, so that the copies are spread evenly
over the time after its release; if everything is eligible from the beginning, they are the epochs of the
source.

The logarithm is computed from sums, products and quotients only, so that it is the same on every machine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import UInt64In

LINEAR, SQRT, EXP, STEP = 0, 1, 2, 3
_LN2 = 0.6931471805599453
_LEAST_LEFT = 2.0**-54
_TINY = 1e-12  # relative distance at which a value counts as on a stair


class Rule(NamedTuple):
    """A competence function (`tasks.mixing.curves`).

    Attributes:
        kind: LINEAR, SQRT, EXP or STEP.
        start: eligible part at the beginning.
        until: progress at which it stops growing.
        stairs: for STEP.
        most: eligible part at the end.
    """

    kind: int
    start: float
    until: float
    stairs: int
    most: float


class Course(NamedTuple):
    """The request of one source over a run of k segments, and its H at p + 1 places.

    Attributes:
        knots: float64 [k + 1], tokens of the run where segments begin and end.
        firsts: float64 [k], the source's share at each segment's start.
        lasts: float64 [k], at its end.
        sums: float64 [k + 1], tokens requested of the source before each segment, and after the last.
        places: float64 [p + 1], tokens of the source, never falling.
        hazards: float64 [p + 1], H there, never falling.
    """

    knots: NDArray[np.float64]
    firsts: NDArray[np.float64]
    lasts: NDArray[np.float64]
    sums: NDArray[np.float64]
    places: NDArray[np.float64]
    hazards: NDArray[np.float64]


@kernel
def draw_times(
    parts: NDArray[np.float64],
    lots: UInt64In,
    copy: int,
    copies: int,
    rule: Rule,
    course: Course,
    releases: NDArray[np.float64],
    times: NDArray[np.float64],
) -> None:
    """Compute when documents become eligible and are drawn, in tokens of their source.

    Args:
        parts: float64 [n], part of the source's tokens before each document, by difficulty; in [0, 1).
        lots: uint64 [n], random numbers.
        copy: number of the copy of the documents, in [0, copies).
        copies: number of copies of each document.
        rule: the competence function.
        course: the request of the source.
        releases: float64 [n], written; infinite for documents that never become eligible.
        times: float64 [n], written; at least the release.
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
    if rule.kind == LINEAR:
        return rule.until * (part - start) / (1 - start)
    if rule.kind == SQRT:
        return rule.until * (part * part - start * start) / (1 - start * start)
    if rule.kind == EXP:
        return rule.until * -logarithm((1 - part) / (1 - start)) / 3
    stair = np.ceil((part - start) / (1 - start) * (rule.stairs - 1) - _TINY)
    return rule.until * stair / rule.stairs


@kernel(inline=True)
def _find(values: NDArray[np.float64], value: float) -> int:
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
def _between(xs: NDArray[np.float64], ys: NDArray[np.float64], at: int, x: float) -> float:
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
