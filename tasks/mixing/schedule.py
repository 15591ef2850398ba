"""Schedules: the shares of the sources as they change over a run.

Proportions are interpolated, and sum to 1 at any position. Changes other than linear ones are approximated by
`LINES` lines: half a cosine to within 2 parts in 100,000 of the change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import pairwise

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Curves, Interval, Shares
from tokmill.tasks.mixing.params import Curve, MixParams
from tokmill.tasks.sampling import EXACT, check_sources, decimal, explicit_weights, raw_weights

LINES = 256
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


@dataclass(frozen=True)
class Ramp:
    """A factor of one source's weight: `before` up to `start`, `after` from `stop` on, changing between."""

    source: int  # index of the source
    start: Decimal  # position in the unit of the timeline
    stop: Decimal  # position in the same unit; at least `start`
    before: Decimal
    after: Decimal
    change: Curve  # how the factor changes

    def factor(self, position: Decimal, *, after: bool = True) -> Decimal:
        """The factor at a position; at a jump, the one after or before it."""
        if position >= self.stop and (after or self.start < self.stop or position > self.stop):
            return self.after
        if position <= self.start:
            return self.before
        moved = _moved((position - self.start) / (self.stop - self.start), self.change)
        return self.before + (self.after - self.before) * moved


@dataclass(frozen=True)
class Timeline:
    """The weights of all sources over a run."""

    params: MixParams  # say how weights change, and in which unit positions are
    sources: tuple[str, ...]  # names of the sources
    points: tuple[tuple[Decimal, Shares], ...]  # positions, increasing from 0, each with all weights
    ramps: tuple[Ramp, ...] = ()  # warm-ups and annealings

    @classmethod
    def of(cls, params: MixParams, sizes: Mapping[str, int]) -> "Timeline":
        """The weights over the run for sources of `sizes` tokens."""
        if params.schedule_unit == "steps" and params.sequence_length is None:
            raise MixingError(
                "mix: schedule_unit='steps' needs sequence_length, tokens per sequence; use e.g. that of "
                "[pack]"
            )
        sources, points = tuple(sizes), []
        for point in params.schedule:
            what = f"schedule: the {'weights' if point.weights else 'proportions'} at {point.start:g}"
            weights = explicit_weights(what, point.given, sizes, MixingError, "mix")
            points.append((params.place(point.start), tuple(weights.values())))
        if not points:
            weights = raw_weights(params, sizes, MixingError, "mix")
            points.append((Decimal(0), tuple(weights.values())))
        ramps = []
        for what, by_source in (("warmup", params.warmup), ("annealing", params.annealing)):
            check_sources(what, by_source, sources, MixingError, "mix")
            for source, ramp in by_source.items():
                ends = (decimal(ramp.factor), Decimal(1))
                before, after = ends if what == "warmup" else ends[::-1]
                start, stop = params.place(ramp.start), params.place(ramp.stop)
                ramps.append(Ramp(sources.index(source), start, stop, before, after, ramp.change))
        return cls(params, sources, tuple(points), tuple(ramps))

    @property
    def is_relative(self) -> bool:
        """Whether positions are fractions of the run instead of tokens."""
        return self.params.schedule_unit == "fraction"

    @property
    def is_constant(self) -> bool:
        """Whether the shares never change."""
        return len(self.points) == 1 and not self.ramps

    def weighted(self) -> dict[str, bool]:
        """Whether each source has a weight at any point."""
        return {source: any(w[k] > 0 for _, w in self.points) for k, source in enumerate(self.sources)}

    def last_change(self) -> Decimal:
        """The position of the last change, in the timeline's unit."""
        return max([start for start, _ in self.points] + [ramp.start for ramp in self.ramps])

    def last_place(self, total: Decimal) -> Decimal:
        """The same in tokens, in a run of `total` tokens."""
        return self.last_change() * (total if self.is_relative else 1)

    def curves(self, end: Decimal) -> Curves:
        """The shares from the run's first token to token `end`, which is more than 0."""
        with localcontext(EXACT):
            scale, own_end = (end, Decimal(1)) if self.is_relative else (Decimal(1), end)
            places = {start for start, _ in self.points}
            places |= {place for ramp in self.ramps for place in (ramp.start, ramp.stop)}
            bounds = [*sorted(place for place in places if place < own_end), own_end]
            intervals = [
                Interval(first * scale, end if last == own_end else last * scale, *shares)
                for first, last, shares in self._lines(bounds)
            ]
        return Curves(self.sources, tuple(intervals))

    def _lines(self, bounds: Sequence[Decimal]) -> Iterator[tuple[Decimal, Decimal, tuple[Shares, Shares]]]:
        for first, last in pairwise(bounds):
            number = 1 if self._is_straight(first, last) else LINES
            places = [first + (last - first) * k / number for k in range(number)] + [last]
            for start, stop in pairwise(places):
                yield start, stop, (self._shares(start, after=True), self._shares(stop, after=False))

    def _is_straight(self, first: Decimal, last: Decimal) -> bool:
        if any(ramp.start < last and ramp.stop > first for ramp in self.ramps):
            return False
        if self.params.change == "hold" or first >= self.points[-1][0]:
            return True
        return self.params.change == "linear" and all(ramp.factor(first) == 1 for ramp in self.ramps)

    def _shares(self, position: Decimal, *, after: bool) -> Shares:
        """The shares at a position; at a jump, those after or before it."""
        weights = list(self._proportions(position, after))
        for ramp in self.ramps:
            weights[ramp.source] *= ramp.factor(position, after=after)
        whole = sum(weights)
        if not whole:
            raise MixingError(
                f"mix: at {self.params.described(position)} no source has a weight; give one of "
                f"{', '.join(self.sources)} a weight there"
            )
        return tuple(weight / whole for weight in weights)

    def _proportions(self, position: Decimal, after: bool) -> Shares:
        passed = sum(start < position or (after and start == position) for start, _ in self.points)
        index = max(0, passed - 1)
        start, weights = self.points[index]
        here = _normal(weights)
        if self.params.change == "hold" or index + 1 == len(self.points):
            return here
        stop, weights = self.points[index + 1]
        moved = _moved((position - start) / (stop - start), self.params.change)
        return tuple(a + (b - a) * moved for a, b in zip(here, _normal(weights), strict=True))


def _normal(weights: Shares) -> Shares:
    whole = sum(weights)
    return tuple(weight / whole for weight in weights) if whole else weights


@lru_cache(maxsize=4 * LINES)
def _moved(passed: Decimal, change: Curve) -> Decimal:
    """The part of a change, from 0 to 1, that is done after the part `passed` of its time."""
    return passed if change == "linear" else (1 - _cosine(_PI * passed)) / 2


def _cosine(angle: Decimal) -> Decimal:
    """The cosine of an angle in [0, π], by its power series; the same on every machine."""
    total = term = Decimal(1)
    k = 0
    while abs(term) > Decimal("1e-45"):
        k += 2
        term = -term * angle * angle / (k * (k - 1))
        total += term
    return total
