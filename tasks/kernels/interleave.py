"""Choose the source of each next document so that every source keeps its share throughout the plan.

The rule is WF²Q (Bennett and Zhang 1996, "WF²Q: Worst-case Fair Weighted Fair Queueing"), for shares that
change. In the ideal, fluid mixture every source has given exactly its requested tokens at every position. A
document's start and finish are the positions at which the fluid mixture would begin and end it. The next
document is the one with the earliest finish among those that have started.

So after P tokens a source with A requested tokens has given at most A plus one of its own documents, and at
least A less the longest document of any source: if documents could be interrupted, every document could be
given by its finish, and earliest finish first meets all finishes, except for the one document in progress.

A source that stops short of its request gets the difference as one more, virtual document, which the clock
counts as given when it is due, so that the other sources divide the gap. If a source's share drops to 0
within a document of the fluid mixture, the document waits until the source has a share again. Meanwhile,
others may be ahead by what such a source leaves.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Float64, Int64, UInt32

# Doubles have 53 bits: positions with a smaller relative difference count as equal.
_SAME = 1e-12


class Curve(NamedTuple):
    """The request: the intervals of `tasks.mixing.curves.Curves`, as k segments for s sources."""

    knots: Float64  # [k + 1], positions where segments begin and end
    firsts: Float64  # [k × s], each source's share at each segment's start; segment after segment
    lasts: Float64  # [k × s], at its end
    sums: Float64  # [(k + 1) × s], tokens requested of each source before each segment, and after the last


class Lanes(NamedTuple):
    """The sources as queues; each has room for `len(lengths) / s` documents."""

    lengths: UInt32  # [s × room], tokens of the waiting documents, lane by lane
    waiting: Int64  # [s], documents in each lane
    taken: Int64  # [s], how many of those were given
    state: Int64  # [s], see below
    segments: Int64  # [s], the segment in which the next document begins
    lacking: Float64  # [s], tokens of the virtual document of a source that stops short
    given: Float64  # [s], tokens given
    starts: Float64  # [s], where the fluid mixture begins the next document; infinite if there is none
    finishes: Float64  # [s], where it ends it
    ahead: Float64  # [s], the most tokens that each source was ahead of the request
    behind: Float64  # [s], the most tokens that each source was behind the request

    @classmethod
    def empty(cls, number: int, room: int) -> "Lanes":
        """Empty lanes at the beginning of a run."""
        whole, real = np.zeros((3, number), dtype=np.int64), np.zeros((6, number))
        lengths, state = np.empty(number * room, dtype=np.uint32), np.full(number, EMPTY, dtype=np.int64)
        return cls(lengths, whole[0], whole[1], state, whole[2], *real)


# The next document's start and finish are not known yet; they are known; the lane has to be filled; only the
# virtual document remains; no document remains.
FRESH, READY, EMPTY, SHORT, OVER = 0, 1, 2, 3, 4


class Clock(NamedTuple):
    """The position of the mixture."""

    out: Float64  # [1], tokens given, including those of virtual documents
    passed: Float64  # [1], tokens of virtual documents
    segment: Int64  # [1], the segment that the real tokens have reached


@kernel
def weave(curve: Curve, lanes: Lanes, clock: Clock, until: float, places: Int64) -> int:
    """Choose documents until the clock is at `until`, `places` is full, or a lane is empty or all are over.

    Writes the index in `lanes.lengths` of each document to `places`, and returns their number. Ties
    (positions that differ by less than one part in 10^12) go to the lower source. O(s) time per document.
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
    """Give a source's next document, and record how far the source is ahead or behind before and after.

    Between two of its documents a source can only fall behind, so the extremes are where documents end.
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
    """Skip the virtual document of a source that stopped short, so that the others do not count as ahead."""
    lanes.given[source] += lanes.lacking[source]
    clock.out[0] += lanes.lacking[source]
    clock.passed[0] += lanes.lacking[source]
    lanes.lacking[source] = 0
    lanes.state[source] = OVER
    lanes.starts[source] = np.inf
    lanes.finishes[source] = np.inf


@kernel(inline=True)
def _requested(curve: Curve, clock: Clock, source: int) -> float:
    """Tokens requested of a source up to the position that the real tokens have reached."""
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
    """Compute the start and finish of a source's next document, or of its virtual one."""
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
    """The position at which a source without a share in `segment` has one again, or `otherwise`."""
    last = len(curve.knots) - 2
    size = len(curve.firsts) // (last + 1)
    while segment < last:
        segment += 1
        if curve.firsts[segment * size + source] > 0 or curve.lasts[segment * size + source] > 0:
            return curve.knots[segment]
    return otherwise


@kernel(inline=True)
def _position(curve: Curve, source: int, segment: int, tokens: float) -> float:
    """The position in or after a segment at which `tokens` are requested; linear after the end."""
    at = segment * (len(curve.firsts) // (len(curve.knots) - 1)) + source
    wanted = tokens - curve.sums[at]
    held = curve.sums[at + len(curve.firsts) // (len(curve.knots) - 1)] - curve.sums[at]
    if wanted >= held:
        return curve.knots[segment + 1] + (wanted - held)
    if wanted <= 0:
        return curve.knots[segment]
    first = curve.firsts[at]
    slope = (curve.lasts[at] - first) / (curve.knots[segment + 1] - curve.knots[segment])
    # if the share falls to 0, the radicand is 0 at the end, and rounding may make it negative
    root = np.sqrt(max(first * first + 2 * slope * wanted, 0.0))
    return min(curve.knots[segment] + 2 * wanted / (first + root), curve.knots[segment + 1])


@kernel(inline=True)
def _next_source(lanes: Lanes, now: float) -> int:
    """The source whose next document finishes first, among those that have started."""
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
    # Some source has always started, unless all of those are over: then take the earliest.
    return best if best >= 0 else earliest
