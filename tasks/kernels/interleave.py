"""Which source gives the next document, so that every source keeps its share all along the way.

The rule is WF²Q (Bennett and Zhang 1996, "WF²Q: Worst-case Fair Weighted Fair Queueing"), which sends packets
of many queues over one line, for shares that change in time. In the ideal, fluid mixture every source has
given exactly the tokens that are requested of it at any moment. A document's start and finish are the
positions at which the fluid mixture would begin and end it. Of the documents that have started there, the one
that finishes first is next.

The bound that this gives: when P tokens are out, a source of which A are requested by then has given at most
A plus one of its own documents, and at least A less the longest document of any source. For the fluid
mixture shows that every document can be out by its finish if documents could be interrupted, and earliest
finish first then keeps all of them but for the one document that may be under way.

A source that stops short of what is asked of it in all, by less than a document, has the difference as one
more document that nobody gets. The rule's clock counts it as out, in its time, so that the other sources
share out what it leaves in the proportions in which they go on anyway; how far they are ahead or behind is
measured by the tokens that are really out. So from where a source stopped on, others may be ahead by what it
lacks, in addition to a document of their own.

A document that the fluid mixture would leave unfinished where its source's share drops to 0 waits until there
is a share again, so that nothing of a source comes where it is left out. As long as it waits, others may be
ahead by what was asked of it, which is less than that document.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, UInt32

# Doubles have 53 bits: what is nearer together than this part of a position is the same moment.
_SAME = 1e-12


class Curve(NamedTuple):
    """What is requested; the segments of `tasks.mixing.curves.Curves`, for k segments and s sources.

    Attributes:
        knots: float64 [k + 1], positions where segments begin and end.
        firsts: float64 [k × s], each source's share at each segment's start; segment after segment.
        lasts: float64 [k × s], at its end.
        sums: float64 [(k + 1) × s], tokens requested of each source before each segment, and after the last.
    """

    knots: NDArray[np.float64]
    firsts: NDArray[np.float64]
    lasts: NDArray[np.float64]
    sums: NDArray[np.float64]


class Lanes(NamedTuple):
    """The sources as queues; each has room for `len(lengths) / s` documents.

    Attributes:
        lengths: uint32 [s × room], tokens of the documents that wait, a lane after the other.
        waiting: int64 [s], documents in each lane.
        taken: int64 [s], how many of those are out.
        state: int64 [s]: `FRESH` where the next document's start and finish are not known yet, `READY` where
            they are, `EMPTY` where the lane has to be filled, `SHORT` where a source that stops short of what
            is asked of it has only the difference left, `OVER` where nothing follows.
        lacking: float64 [s], that difference.
        given: float64 [s], tokens out.
        starts: float64 [s], where the fluid mixture begins the next document; infinite if there is none.
        finishes: float64 [s], where it ends it.
        segments: int64 [s], the segment in which it begins.
        ahead: float64 [s], the most tokens that a source ever was ahead of the request.
        behind: float64 [s], the most that it ever was behind.
    """

    lengths: UInt32
    waiting: Int64
    taken: Int64
    state: Int64
    lacking: NDArray[np.float64]
    given: NDArray[np.float64]
    starts: NDArray[np.float64]
    finishes: NDArray[np.float64]
    segments: Int64
    ahead: NDArray[np.float64]
    behind: NDArray[np.float64]


FRESH, READY, EMPTY, SHORT, OVER = 0, 1, 2, 3, 4


class Clock(NamedTuple):
    """Where the mixture is.

    Attributes:
        out: float64 [1], tokens that are out, and those that were passed by.
        passed: float64 [1], tokens that were passed by, since a source stopped short of them.
        segment: int64 [1], the segment of the tokens that are really out.
    """

    out: NDArray[np.float64]
    passed: NDArray[np.float64]
    segment: Int64


@kernel
def weave(curve: Curve, lanes: Lanes, clock: Clock, until: float, places: Int64) -> int:
    """Choose documents until `until` tokens are out, `places` is full, or a lane is empty or all are over.

    Args:
        curve: what is requested.
        lanes: the sources; changed.
        clock: changed.
        until: position of the clock; documents that begin before it are out when this returns.
        places: int64 [n], written: the index in `lanes.lengths` of each document that was chosen, in order.

    Returns:
        How many documents were chosen. Ties, which are positions that differ by less than one part in 10^12,
        go to the lower source. O(s) time a document.
    """
    size = len(lanes.waiting)
    room = len(lanes.lengths) // size
    for source in range(size):
        if lanes.state[source] == EMPTY:
            return 0
        if lanes.state[source] == FRESH or lanes.state[source] == SHORT:
            _look_ahead(curve, lanes, source, room)
    chosen = 0
    while chosen < len(places) and clock.out[0] < until:
        best = _next_source(lanes, clock.out[0])
        if lanes.state[best] == OVER:
            break
        if lanes.state[best] == SHORT:
            _give_up(lanes, clock, best)
            continue
        places[chosen] = best * room + lanes.taken[best]
        chosen += 1
        _give(curve, lanes, clock, best, room)
        if lanes.taken[best] == lanes.waiting[best]:
            lanes.state[best] = EMPTY
            break
        _look_ahead(curve, lanes, best, room)
    return chosen


@kernel(inline=True)
def _give(curve: Curve, lanes: Lanes, clock: Clock, source: int, room: int) -> None:
    """Put a source's next document out, and note how far the source is from the request before and after.

    Between two of its documents a source only falls back, so that these are the moments that count.
    """
    requested = _requested(curve, clock, source)
    lanes.behind[source] = max(lanes.behind[source], requested - lanes.given[source])
    length = lanes.lengths[source * room + lanes.taken[source]]
    lanes.given[source] += length
    lanes.taken[source] += 1
    clock.out[0] += length
    requested = _requested(curve, clock, source)
    lanes.ahead[source] = max(lanes.ahead[source], lanes.given[source] - requested)


@kernel(inline=True)
def _give_up(lanes: Lanes, clock: Clock, source: int) -> None:
    """Pass by what a source lacks, so that the others are not taken to be ahead for it."""
    lanes.given[source] += lanes.lacking[source]
    clock.out[0] += lanes.lacking[source]
    clock.passed[0] += lanes.lacking[source]
    lanes.lacking[source] = 0
    lanes.state[source] = OVER
    lanes.starts[source] = np.inf
    lanes.finishes[source] = np.inf


@kernel(inline=True)
def _requested(curve: Curve, clock: Clock, source: int) -> float:
    """Tokens requested of a source by what is really out."""
    out = clock.out[0] - clock.passed[0]
    last = len(curve.knots) - 2
    while clock.segment[0] < last and curve.knots[clock.segment[0] + 1] <= out:
        clock.segment[0] += 1
    segment = clock.segment[0]
    at = segment * (len(curve.firsts) // (last + 1)) + source
    width = curve.knots[segment + 1] - curve.knots[segment]
    passed = min(out - curve.knots[segment], width)
    slope = (curve.lasts[at] - curve.firsts[at]) / width
    return curve.sums[at] + passed * (curve.firsts[at] + slope * passed / 2)


@kernel(inline=True)
def _look_ahead(curve: Curve, lanes: Lanes, source: int, room: int) -> None:
    """Note where the fluid mixture begins and ends a source's next document, or what it lacks."""
    given = lanes.given[source]
    if lanes.state[source] == SHORT:
        end = given + lanes.lacking[source]
    else:
        end = given + lanes.lengths[source * room + lanes.taken[source]]
        lanes.state[source] = READY
    last = len(curve.knots) - 2
    size = len(curve.firsts) // (last + 1)
    begin = lanes.segments[source]
    while begin < last and curve.sums[(begin + 1) * size + source] <= given * (1 + _SAME):
        begin += 1
    lanes.segments[source] = begin
    lanes.starts[source] = _position(curve, source, begin, given)
    finish = begin
    while finish < last and curve.sums[(finish + 1) * size + source] < end * (1 - _SAME):
        finish += 1
        at = finish * size + source
        if curve.firsts[at] == 0 and curve.lasts[at] == 0 and curve.sums[at] < end - 1:
            lanes.starts[source] = _resumes(curve, source, finish, lanes.starts[source])
    lanes.finishes[source] = _position(curve, source, finish, end)


@kernel(inline=True)
def _resumes(curve: Curve, source: int, segment: int, otherwise: float) -> float:
    """Where a source has a share again that has none in `segment`; `otherwise` if that is nowhere."""
    last = len(curve.knots) - 2
    size = len(curve.firsts) // (last + 1)
    while segment < last:
        segment += 1
        if curve.firsts[segment * size + source] > 0 or curve.lasts[segment * size + source] > 0:
            return curve.knots[segment]
    return otherwise


@kernel(inline=True)
def _position(curve: Curve, source: int, segment: int, tokens: float) -> float:
    """Where in or behind a segment `tokens` of a source are requested; behind the end one for each token."""
    at = segment * (len(curve.firsts) // (len(curve.knots) - 1)) + source
    wanted = tokens - curve.sums[at]
    held = curve.sums[at + len(curve.firsts) // (len(curve.knots) - 1)] - curve.sums[at]
    if wanted >= held:
        return curve.knots[segment + 1] + (wanted - held)
    if wanted <= 0:
        return curve.knots[segment]
    first = curve.firsts[at]
    slope = (curve.lasts[at] - first) / (curve.knots[segment + 1] - curve.knots[segment])
    # where the share falls to 0, what is under the root is 0 at the end, and rounding may take it below
    root = np.sqrt(max(first * first + 2 * slope * wanted, 0.0))
    return min(curve.knots[segment] + 2 * wanted / (first + root), curve.knots[segment + 1])


@kernel(inline=True)
def _next_source(lanes: Lanes, now: float) -> int:
    """Of the sources whose next document has started the one that finishes first."""
    slack = now * _SAME
    best = -1
    earliest = 0
    for source in range(len(lanes.starts)):
        if lanes.finishes[source] < lanes.finishes[earliest] - slack:
            earliest = source
        if lanes.starts[source] <= now + slack and (
            best < 0 or lanes.finishes[source] < lanes.finishes[best] - slack
        ):
            best = source
    # Some source has always started, unless those that have are over: then the earliest will do.
    return best if best >= 0 else earliest
