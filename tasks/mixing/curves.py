"""Request curves: the tokens requested of each source up to each position of the run.

A source's share is a piecewise linear function of the position in the run. Its integral, the number of tokens
requested up to a position, is piecewise quadratic. All arithmetic here is decimal with 50 digits; the kernel
that interleaves the sources gets the same curves as doubles.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import RequestTable
from tokmill.tasks.kernels.interleave import Curve
from tokmill.tasks.sampling import EXACT

Shares: TypeAlias = tuple[Decimal, ...]


@dataclass(frozen=True)
class Interval:
    """A part of the run in which each source's share is a linear function of the position.

    Attributes:
        start: position in tokens.
        stop: position in tokens, greater than `start`.
        first: each source's share at the start.
        last: each source's share at the end.
    """

    start: Decimal
    stop: Decimal
    first: Shares
    last: Shares

    def given(self, source: int, position: Decimal) -> Decimal:
        """Tokens requested of a source from the interval's start to a position in it."""
        passed = position - self.start
        slope = (self.last[source] - self.first[source]) / (self.stop - self.start)
        return self.first[source] * passed + slope * passed * passed / 2


@dataclass(frozen=True)
class Curves:
    """The shares of all sources over a run, as piecewise linear functions.

    Attributes:
        sources: names of the sources.
        intervals: consecutive intervals, from position 0.
    """

    sources: tuple[str, ...]
    intervals: tuple[Interval, ...]

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
