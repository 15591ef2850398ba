"""Request curves: the tokens requested of each source up to each position of the run.

A source's share is a piecewise linear function of the position in the run. Its integral, the number of tokens
requested up to a position, is piecewise quadratic. All arithmetic here is decimal with 50 digits; the kernel
that interleaves the sources gets the same curves as doubles.

Competence functions: the eligible part of a source as a function of the run's progress.

With t the progress, in [0, 1], stretched so that 1 is reached at `until`, and c the starting fraction:

    linear   f(t) = c + (1 - c) t
    sqrt     f(t) = √(c² + (1 - c²) t)
    exp      f(t) = c + (1 - c) (1 - e^(-3t))       reaches 95 % of the missing part, never all of it
    step     f(t) = c + (1 - c) i / (s - 1)         on stair i = ⌊s t⌋ of s stairs

At progress t the easiest documents of a source, up to and including the one in which f(t) of its tokens end,
are eligible. A document with a part q of its source's tokens before it, by difficulty, becomes eligible at
the smallest t with f(t) ≥ q: its release.

A source of n tokens can meet a request of A(t) tokens by t if A(t) ≤ k n f(t) at every t, where k is the
number of times that each document may be drawn. The source's pace is the largest A(t) / (n f(t)).

Source: Platanios et al. 2019, "Competence-based Curriculum Learning for Neural Machine Translation" (linear
and square root).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from itertools import accumulate, repeat
from operator import mul
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import RequestTable
from tokmill.tasks.kernels.interleave import Curve
from tokmill.tasks.sampling import EXACT

Shares: TypeAlias = tuple[Decimal, ...]
Kind: TypeAlias = Literal["linear", "sqrt", "exp", "step"]
_PLACES = 4096
_ON_EDGE = 1e-9


@dataclass(frozen=True)
class Interval:
    """A part of the run in which each source's share is a linear function of the position."""

    start: Decimal  # position in tokens
    stop: Decimal  # position in tokens, greater than `start`
    first: Shares  # each source's share at the start
    last: Shares  # each source's share at the end

    def given(self, source: int, position: Decimal) -> Decimal:
        """Tokens requested of a source from the interval's start to a position in it."""
        passed = position - self.start
        slope = (self.last[source] - self.first[source]) / (self.stop - self.start)
        return self.first[source] * passed + slope * passed * passed / 2


@dataclass(frozen=True)
class Curves:
    """The shares of all sources over a run, as piecewise linear functions."""

    sources: tuple[str, ...]  # names of the sources
    intervals: tuple[Interval, ...]  # consecutive intervals, from position 0

    @property
    def end(self) -> Decimal:
        """The last position."""
        return self.intervals[-1].stop

    @cached_property
    def _sums(self) -> list[Shares]:
        """Tokens requested of each source before each interval, and after the last."""
        with localcontext(EXACT):
            per_interval = [
                tuple(interval.given(k, interval.stop) for k in range(len(self.sources)))
                for interval in self.intervals
            ]
            nothing = (Decimal(0),) * len(self.sources)
            return list(accumulate(per_interval, _added, initial=nothing))

    @cached_property
    def _stops(self) -> list[Decimal]:
        return [interval.stop for interval in self.intervals]

    def requested(self, position: Decimal) -> dict[str, Decimal]:
        """Tokens requested of each source up to a position in [0, end]."""
        with localcontext(EXACT):
            index = bisect_left(self._stops, position)
            before, interval = self._sums[index], self.intervals[index]
            return {source: before[k] + interval.given(k, position) for k, source in enumerate(self.sources)}

    def reaches(self, source: str, tokens: Decimal) -> Decimal | None:
        """The last position up to which at most `tokens` are requested of a source; None for the end."""
        k = self.sources.index(source)
        with localcontext(EXACT):
            for index, interval in enumerate(self.intervals):
                if self._sums[index + 1][k] > tokens:
                    return interval.start + _solved(interval, k, tokens - self._sums[index][k])
        return None

    def doubles(self, source: int, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens requested of one source up to each position, float64 [n]; constant after the end."""
        curve, size = self.arrays, len(self.sources)
        at = np.clip(np.searchsorted(curve.knots, positions, side="right") - 1, 0, len(self.intervals) - 1)
        first, last = curve.firsts[at * size + source], curve.lasts[at * size + source]
        width = curve.knots[at + 1] - curve.knots[at]
        passed = np.minimum(positions - curve.knots[at], width)
        return curve.sums[at * size + source] + passed * (first + (last - first) / width * passed / 2)

    def table(self) -> RequestTable:
        """The curves in the form that is stored on disk."""
        curve, shape = self.arrays, (len(self.intervals), len(self.sources))
        return RequestTable(
            curve.knots,
            curve.firsts.reshape(shape),
            curve.lasts.reshape(shape),
            curve.sums[: -len(self.sources)].reshape(shape),
        )

    @cached_property
    def arrays(self) -> Curve:
        """The curves in the form that the kernel takes."""
        return Curve(
            knots=_doubles([[self.intervals[0].start], *([interval.stop] for interval in self.intervals)]),
            firsts=_doubles([interval.first for interval in self.intervals]),
            lasts=_doubles([interval.last for interval in self.intervals]),
            sums=_doubles(self._sums),
        )


def _added(a: Shares, b: Shares) -> Shares:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _solved(interval: Interval, source: int, tokens: Decimal) -> Decimal:
    """The distance into an interval at which `tokens` of a source, fewer than in all of it, are requested."""
    first = interval.first[source]
    slope = (interval.last[source] - first) / (interval.stop - interval.start)
    root = (first * first + 2 * slope * tokens).sqrt()
    if not first + root:  # nothing is requested yet: the share starts at 0
        return Decimal(0)
    return 2 * tokens / (first + root)


def _doubles(rows: Sequence[Sequence[Decimal]]) -> NDArray[np.float64]:
    return np.array([float(value) for row in rows for value in row], dtype=np.float64)


@dataclass(frozen=True)
class Competence:
    """A competence function."""

    kind: Kind  # shape of the function
    start: Decimal  # c, the eligible part at the beginning, in [0, 1]
    until: Decimal = Decimal(1)  # the progress at which it stops growing, in (0, 1]
    stairs: int = 10  # s, for "step"; at least 2

    def eligible(self, progress: Decimal, *, before: bool = False) -> Decimal:
        """The part f of each source's tokens that is eligible at a progress in [0, 1], or `before` it."""
        with localcontext(EXACT):
            t, c = min(progress / self.until, Decimal(1)), self.start
            if self.kind == "linear":
                return c + (1 - c) * t
            if self.kind == "sqrt":
                return (c * c + (1 - c * c) * t).sqrt()
            if self.kind == "exp":
                return c + (1 - c) * (1 - (-3 * t).exp())
            passed = t * self.stairs
            stair = int((passed - before).to_integral_value(ROUND_CEILING if before else ROUND_FLOOR))
            return c + (1 - c) * max(0, min(stair, self.stairs - 1)) / (self.stairs - 1)

    def release(self, part: Decimal) -> Decimal | None:
        """The smallest progress at which a part, in [0, 1), is eligible; None if it never is."""
        with localcontext(EXACT):
            c = self.start
            if part <= c:
                return Decimal(0)
            if self.kind == "linear":
                return self.until * (part - c) / (1 - c)
            if self.kind == "sqrt":
                return self.until * (part * part - c * c) / (1 - c * c)
            if self.kind == "exp":
                missing = (1 - part) / (1 - c)
                return None if missing < Decimal(-3).exp() else self.until * -missing.ln() / 3
            stair = ((part - c) / (1 - c) * (self.stairs - 1)).to_integral_value(ROUND_CEILING)
            return self.until * stair / self.stairs

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """The values of `eligible` at 4097 points from 0 to 1, as doubles."""
        return self._doubles(np.arange(_PLACES + 1) / _PLACES, before=False)

    def _doubles(self, places: NDArray[np.float64], *, before: bool) -> NDArray[np.float64]:
        """`eligible` at many points, computed only with sums, products, quotients and roots."""
        t, c = np.minimum(places / float(self.until), 1.0), float(self.start)
        if self.kind == "linear":
            return c + (1 - c) * t
        if self.kind == "sqrt":
            return np.sqrt(c * c + (1 - c * c) * t)
        if self.kind == "exp":
            return c + (1 - c) * (1 - self._powers[np.rint(places * _PLACES).astype(np.int64)])
        passed = t * self.stairs
        stair = np.ceil(passed - 1 - _ON_EDGE) if before else np.floor(passed + _ON_EDGE)
        return c + (1 - c) * np.clip(stair, 0, self.stairs - 1) / (self.stairs - 1)

    @cached_property
    def _powers(self) -> NDArray[np.float64]:
        """e^(-3t) at the points of `table`."""
        with localcontext(EXACT):
            one = (Decimal(-3) / _PLACES / self.until).exp()
            powers = accumulate(repeat(one, _PLACES), mul, initial=Decimal(1))
            least = Decimal(-3).exp()
            return np.array([float(max(power, least)) for power in powers])

    def pace(
        self, curves: Curves, source: str, num_tokens: int, shift: float = 0.0, begin: float = 0.0
    ) -> float:
        """The fewest times that each eligible document must be drawn for a source to meet its request.

        Returns:
            A number ≥ 0; infinite if tokens are requested while nothing is eligible.
        """
        places = np.arange(1, _PLACES + 1) / _PLACES
        if self.kind == "step":  # the maximum is at the edge of a stair, which may lie between two points
            edges = np.arange(1, self.stairs) / self.stairs * float(self.until)
            places = np.concatenate([places, edges])
        places = places[places > begin]
        asked = curves.doubles(curves.sources.index(source), places * float(curves.end)) - shift
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(asked > 0, asked / (self._doubles(places, before=True) * num_tokens), 0.0)
        return float(ratios.max(initial=0.0))
