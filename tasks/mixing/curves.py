"""Competence functions, and request curves: the tokens requested of each source by each position of the run.

A source's share is a piecewise linear function of the position, so its integral, the tokens requested, is
piecewise quadratic. All arithmetic is decimal with 50 digits; kernels get the same curves as doubles.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import accumulate, repeat
from operator import add, mul
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

    def requested(self, source: int, position: Decimal) -> Decimal:
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
            per_source = [
                list(
                    accumulate((part.requested(k, part.stop) for part in self.intervals), initial=Decimal(0))
                )
                for k in range(len(self.sources))
            ]
            return list(zip(*per_source, strict=True))

    @cached_property
    def _stops(self) -> list[Decimal]:
        return [interval.stop for interval in self.intervals]

    def requested(self, position: Decimal) -> dict[str, Decimal]:
        """Tokens requested of each source up to a position in [0, end]."""
        with localcontext(EXACT):
            index = bisect_left(self._stops, position)
            parts = (self.intervals[index].requested(k, position) for k in range(len(self.sources)))
            return dict(zip(self.sources, map(add, self._sums[index], parts), strict=True))

    def reaches(self, source: str, tokens: Decimal) -> Decimal | None:
        """The last position up to which at most `tokens` are requested of a source; None for the end."""
        k = self.sources.index(source)
        with localcontext(EXACT):
            for index, interval in enumerate(self.intervals):
                if self._sums[index + 1][k] > tokens:
                    missing, first = tokens - self._sums[index][k], interval.first[k]
                    slope = (interval.last[k] - first) / (interval.stop - interval.start)
                    root = (first * first + 2 * slope * missing).sqrt()
                    # without a root nothing is requested yet: the share starts at 0
                    return interval.start + (2 * missing / (first + root) if first + root else 0)
        return None

    @cached_property
    def table(self) -> RequestTable:
        """The curves as they are stored."""
        starts = [self.intervals[0].start, *self._stops]
        return RequestTable(
            np.array(list(map(float, starts))),
            _doubles([interval.first for interval in self.intervals]),
            _doubles([interval.last for interval in self.intervals]),
            _doubles(self._sums[:-1]),
        )

    def of_source(self, source: int) -> RequestTable:
        """The curve of one source."""
        table, own = self.table, slice(source, source + 1)
        return RequestTable(table.knots, table.firsts[:, own], table.lasts[:, own], table.before[:, own])

    @cached_property
    def arrays(self) -> Curve:
        """The curves as the kernel takes them."""
        table = self.table
        return Curve(table.knots, table.firsts.ravel(), table.lasts.ravel(), _doubles(self._sums).ravel())


def _doubles(rows: Sequence[Sequence[Decimal]]) -> NDArray[np.float64]:
    return np.array([list(map(float, row)) for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class Competence:
    """A competence function f: the eligible part of a source's tokens at progress t, in [0, 1], of the run.

    linear   f(t) = c + (1 - c) t
    sqrt     f(t) = √(c² + (1 - c²) t)
    exp      f(t) = c + (1 - c) (1 - e^(-3t))       reaches 95 % of the missing part, never all of it
    step     f(t) = c + (1 - c) i / (s - 1)         on stair i = ⌊s t⌋ of s stairs

    At progress t the easiest documents, up to and including the one in which f(t) of the source's tokens end,
    are eligible. Source: Platanios et al. 2019, "Competence-based Curriculum Learning for Neural Machine
    Translation".
    """

    kind: Kind
    start: Decimal  # c, the eligible part at the beginning, in [0, 1]
    until: Decimal = Decimal(1)  # the progress at which t is 1 and it stops growing, in (0, 1]
    stairs: int = 10  # s, for "step"; at least 2

    @property
    def most(self) -> float:
        """The eligible part at the end."""
        with localcontext(EXACT):
            missing = Decimal(-3).exp() if self.kind == "exp" else Decimal(0)
            return float(self.start + (1 - self.start) * (1 - missing))

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """The values of `eligible` at 4097 points from 0 to 1."""
        return self.eligible(np.arange(_PLACES + 1) / _PLACES)

    def eligible(self, places: NDArray[np.float64], *, before: bool = False) -> NDArray[np.float64]:
        """F at many places, or shortly before them, computed only with sums, products, quotients and roots.

        For 'exp', places are those of `table`.
        """
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

        With A(t) tokens requested of `num_tokens`, that is the largest A(t) / (num_tokens × f(t)); infinite
        if tokens are requested while nothing is eligible.
        """
        places = np.arange(1, _PLACES + 1) / _PLACES
        if self.kind == "step":  # the maximum is at the edge of a stair, which may lie between two points
            edges = np.arange(1, self.stairs) / self.stairs * float(self.until)
            places = np.concatenate([places, edges])
        places = places[places > begin]
        curve = curves.of_source(curves.sources.index(source))
        requested = curve.along(places * float(curves.end))[:, 0] - shift
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = requested / (self.eligible(places, before=True) * num_tokens)
        return float(np.where(requested > 0, ratios, 0.0).max(initial=0.0))
