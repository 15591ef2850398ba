"""Schedules: the shares of the sources as they change over a run.

The model. Weights are given at points of the run, in steps, tokens or fractions of the run. Between two
points they hold, or change to the next ones linearly or along half a cosine wave; after the last point they
hold. A source's warm-up and annealing multiply its weight by a factor that changes between 1 and the given
one. Weights are first normalized to sum to 1, and the proportions are interpolated.

Laws. At any position the shares sum to 1. A linear change between two points, without warm-up or annealing,
is exact. Every other change is approximated by `LINES` straight lines, which are the mixture's request: for
half a cosine they differ from the wave by less than 2 parts in 100,000 of the change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Curves, Interval, Shares
from tokmill.tasks.sampling import EXACT

Curve: TypeAlias = Literal["linear", "cosine"]
Change: TypeAlias = Literal["hold", Curve]
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

    def factor(self, position: Decimal) -> Decimal:
        """The factor at a position."""
        if position >= self.stop:
            return self.after
        if position <= self.start:
            return self.before
        moved = _moved((position - self.start) / (self.stop - self.start), self.change)
        return self.before + (self.after - self.before) * moved


@dataclass(frozen=True)
class Timeline:
    """The weights of all sources over a run.

    Attributes:
        sources: names of the sources.
        points: positions, increasing from 0, each with a weight for each source.
        change: how the weights change from one point to the next.
        ramps: warm-ups and annealings.
        relative: whether positions are fractions of the run instead of tokens.
        described: formats a position in the user's unit, for messages.
    """

    sources: tuple[str, ...]
    points: tuple[tuple[Decimal, Shares], ...]
    change: Change = "hold"
    ramps: tuple[Ramp, ...] = ()
    relative: bool = True
    described: Callable[[Decimal], str] = str

    @property
    def is_constant(self) -> bool:
        """Whether the shares never change."""
        return len(self.points) == 1 and not self.ramps

    def weighted(self) -> dict[str, bool]:
        """Whether each source has a weight at any point."""
        return {source: any(w[k] > 0 for _, w in self.points) for k, source in enumerate(self.sources)}

    def last_place(self, total: Decimal, *, own_unit: bool = False) -> Decimal:
        """The position of the last change in a run of `total` tokens, in tokens or the timeline's unit."""
        place = max([start for start, _ in self.points] + [ramp.start for ramp in self.ramps])
        return place * total if self.relative and not own_unit else place

    def scaled(self, factors: Mapping[str, Decimal]) -> "Timeline":
        """The same with each source's weights multiplied, at every point."""
        by_index = [factors.get(source, Decimal(1)) for source in self.sources]
        points = tuple(
            (start, tuple(w * f for w, f in zip(weights, by_index, strict=True)))
            for start, weights in self.points
        )
        return replace(self, points=points)

    def curves(self, end: Decimal) -> Curves:
        """The shares from the run's first token to token `end`, which is more than 0."""
        with localcontext(EXACT):
            scale = end if self.relative else Decimal(1)
            own_end = Decimal(1) if self.relative else end
            bounds = [bound for bound in self._bounds() if bound < own_end]
            intervals = [
                Interval(first * scale, end if last == own_end else last * scale, *shares)
                for first, last, shares in self._lines([*bounds, own_end])
            ]
        return Curves(self.sources, tuple(intervals))

    def _bounds(self) -> list[Decimal]:
        """Every position at which a change begins or ends, in order."""
        places = {start for start, _ in self.points}
        places |= {place for ramp in self.ramps for place in (ramp.start, ramp.stop)}
        return sorted(places)

    def _lines(self, bounds: Sequence[Decimal]) -> Iterator[tuple[Decimal, Decimal, tuple[Shares, Shares]]]:
        for first, last in pairwise(bounds):
            number = self._number_of_lines(first, last)
            places = [first + (last - first) * k / number for k in range(number)] + [last]
            for start, stop in pairwise(places):
                yield start, stop, (self.shares(start, after=True), self.shares(stop, after=False))

    def _number_of_lines(self, first: Decimal, last: Decimal) -> int:
        ramped = any(ramp.start < last and ramp.stop > first for ramp in self.ramps)
        factored = any(ramp.factor(first) != 1 for ramp in self.ramps)
        moving = self.change != "hold" and first < self.points[-1][0]
        straight = not moving or (self.change == "linear" and not factored)
        return 1 if straight and not ramped else LINES

    def shares(self, position: Decimal, *, after: bool) -> Shares:
        """The shares at a position; at a jump, those after or before it."""
        weights = list(self._proportions(position, after))
        for ramp in self.ramps:
            weights[ramp.source] *= (
                ramp.before if position == ramp.start == ramp.stop and not after else (ramp.factor(position))
            )
        whole = sum(weights)
        if not whole:
            raise MixingError(
                f"mix: at {self.described(position)} no source has a weight; give one of "
                f"{', '.join(self.sources)} a weight there"
            )
        return tuple(weight / whole for weight in weights)

    def _proportions(self, position: Decimal, after: bool) -> Shares:
        """The proportions interpolated at a position, without ramps."""
        passed = [
            k for k, (start, _) in enumerate(self.points) if start < position or (after and start == position)
        ]
        index = passed[-1] if passed else 0
        here = _normal(self.points[index][1])
        if self.change == "hold" or index + 1 == len(self.points):
            return here
        (start, _), (stop, weights) = self.points[index], self.points[index + 1]
        moved = _moved((position - start) / (stop - start), self.change)
        return tuple(a + (b - a) * moved for a, b in zip(here, _normal(weights), strict=True))


def _normal(weights: Shares) -> Shares:
    whole = sum(weights)
    return tuple(weight / whole for weight in weights) if whole else weights


@lru_cache(maxsize=4 * LINES)
def _moved(passed: Decimal, change: Change) -> Decimal:
    """Return the part of a change that is done after the part `passed`, in [0, 1], of its time."""
    return passed if change == "hold" else _CURVES[change](passed)


def _half_wave(passed: Decimal) -> Decimal:
    return (1 - _cosine(_PI * passed)) / 2


def _cosine(angle: Decimal) -> Decimal:
    """The cosine of an angle in [0, π], by its power series; the same on every machine."""
    total = term = Decimal(1)
    k = 0
    while abs(term) > Decimal("1e-45"):
        k += 2
        term = -term * angle * angle / (k * (k - 1))
        total += term
    return total


_CURVES: Mapping[Curve, Callable[[Decimal], Decimal]] = {
    "linear": lambda passed: passed,
    "cosine": _half_wave,
}
"""For each curve, the part of the change that is done after a part of its time: from 0 at 0 to 1 at 1."""
