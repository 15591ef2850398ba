"""Check whether a request can be met: the tokens requested of every source against its limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from math import ceil
from typing import Self

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Competence
from tokmill.tasks.mixing.lengths import NOTHING, History
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.schedule import Timeline
from tokmill.tasks.sampling import EXACT, check_sources, decimal, rounded

_EXACT_SLACK = Decimal("1e-15")  # tokens; less is a rounding error, since totals have 30 digits
_CARRIED_SLACK = Decimal("1e-9")  # the same with counts carried over, which are doubles
SAME_PACE = 1e-9


@dataclass(frozen=True)
class Limits:
    """The limits of all sources, by name."""

    sizes: Mapping[str, int]  # tokens of each source
    repetitions: Mapping[str, float]  # the most times that each may be drawn
    epochs: Mapping[str, float]  # the fewest times that each must be drawn
    caps: Mapping[str, Decimal]  # `repetitions` in tokens, rounded down
    floors: Mapping[str, Decimal]  # `epochs` in tokens, rounded up

    @classmethod
    def of(cls, params: MixParams, sizes: Mapping[str, int], weighted: Mapping[str, bool]) -> Self:
        """The limits that the parameters set on sources of `sizes` tokens; `weighted` marks those drawn."""
        repetitions = _by_source(params.max_repetition, sizes, 1.0, "max_repetition")
        epochs = _by_source(params.min_epochs, sizes, 0.0, "min_epochs")
        if not isinstance(params.min_epochs, Mapping):
            epochs = {source: least if weighted[source] else 0.0 for source, least in epochs.items()}
        for source, least in epochs.items():
            if least > repetitions[source]:
                raise MixingError(
                    f"mix: min_epochs={least:g} of '{source}' must be at most its max_repetition="
                    f"{repetitions[source]:g}; lower the former or raise the latter"
                )
            if least and not weighted[source]:
                raise MixingError(
                    f"mix: min_epochs={least:g} of '{source}', but its weight is 0; give it a weight, or "
                    "remove it from min_epochs"
                )
        with localcontext(EXACT):
            caps = {source: _times(repetitions[source], size, ROUND_FLOOR) for source, size in sizes.items()}
            floors = {source: _times(epochs[source], size, ROUND_CEILING) for source, size in sizes.items()}
        return cls(sizes, repetitions, epochs, caps, floors)


def _by_source(
    limit: float | Mapping[str, float], sizes: Mapping[str, int], default: float, what: str
) -> dict[str, float]:
    if not isinstance(limit, Mapping):
        return dict.fromkeys(sizes, limit)
    check_sources(what, limit, sizes, MixingError, "mix")
    return dict.fromkeys(sizes, default) | dict(limit)


def _times(factor: float, size: int, rounding: str) -> Decimal:
    return (decimal(factor) * size).to_integral_value(rounding)


@dataclass(frozen=True)
class Pacing:
    """A competence function and the sources that it paces."""

    competence: Competence
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A request for any total: weights over the run, limits, pacing and history.

    All tokens and totals are those of the whole run.
    """

    timeline: Timeline
    limits: Limits
    pacing: Pacing | None = None
    history: History = NOTHING

    @property
    def slack(self) -> Decimal:
        """Tokens below which a difference is a rounding error."""
        return _CARRIED_SLACK if self.history.position else _EXACT_SLACK

    @cached_property
    def reaches(self) -> dict[str, Decimal]:
        """For each source with a weight, the largest total at which it does not run out."""
        return self._totals(self.limits.caps)

    @cached_property
    def needs(self) -> dict[str, Decimal]:
        """For each source, the smallest total at which it is drawn often enough, if there is one."""
        return self._totals(self.limits.floors)

    def _totals(self, tokens: Mapping[str, Decimal]) -> dict[str, Decimal]:
        """For each source, the total at which `tokens` are requested of it."""
        sources = [source for source, has_weight in self.timeline.weighted().items() if has_weight]
        horizon = self.history.position + sum(self.limits.caps.values(), Decimal(1))
        with localcontext(EXACT):
            if self.timeline.relative:
                drawn = [source for source in sources if self._shares[source]]
                return {source: self._total(source, tokens[source], horizon) for source in drawn}
            curves = self.timeline.curves(horizon)
            shifts = self.history.shifts(curves)
            found = {source: curves.reaches(source, tokens[source] + shifts[source]) for source in sources}
            return {source: horizon if total is None else total for source, total in found.items()}

    def _total(self, source: str, tokens: Decimal, horizon: Decimal) -> Decimal:
        """The total at which `tokens` are requested of a source, if positions are fractions of the total.

        If the request changed in an earlier mixture, it is found by binary search over whole numbers.
        """
        direct = tokens / self._shares[source]
        if not self.history.position:
            return direct
        if direct > self.history.begin and abs(self.amounts(direct)[source] - tokens) < self.slack:
            return direct
        low, high = self.history.position, int(horizon)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.amounts(Decimal(middle))[source] <= tokens + self.slack
            low, high = (middle, high) if fits else (low, middle)
        return Decimal(low)

    def amounts(self, total: Decimal) -> dict[str, Decimal]:
        """Tokens requested of each source at a total; earlier requests count as they were made."""
        with localcontext(EXACT):
            if self.timeline.relative and not self.history.position:
                return {source: share * total for source, share in self._shares.items()}
            curves = self.timeline.curves(total)
            shifts = self.history.shifts(curves)
            return {source: asked - shifts[source] for source, asked in curves.requested(total).items()}

    @cached_property
    def _shares(self) -> dict[str, Decimal]:
        """Each source's share of all tokens, if it does not depend on the total."""
        return self.timeline.curves(Decimal(1)).requested(Decimal(1))

    def over(self, total: Decimal) -> dict[str, Decimal]:
        """The sources that run out at a total, with the tokens requested of them."""
        caps = self.limits.caps
        return {s: asked for s, asked in self.amounts(total).items() if asked > caps[s] + self.slack}

    def under(self, total: Decimal) -> dict[str, Decimal]:
        """The sources below their floor at a total, with the tokens requested of them."""
        floors = self.limits.floors
        return {s: asked for s, asked in self.amounts(total).items() if asked < floors[s] - self.slack}

    def held_back(self, total: Decimal) -> dict[str, float]:
        """The sources with too little eligible text at a total, with their paces (see `curves`)."""
        paces = self.paces(total)
        return {s: pace for s, pace in paces.items() if pace > ceil(self.limits.repetitions[s]) + SAME_PACE}

    def paces(self, total: Decimal) -> dict[str, float]:
        """The pace of each paced source with a weight (see `curves`)."""
        if self.pacing is None:
            return {}
        curves, drawn = self.timeline.curves(total), self.timeline.weighted()
        shifts, begin = self.history.shifts(curves), self.history.position / float(total)
        return {
            source: self.pacing.competence.pace(
                curves, source, self.limits.sizes[source], float(shifts[source]), begin
            )
            for source in self.pacing.sources
            if drawn[source]
        }

    def largest(self) -> Decimal:
        """The largest total at which no source runs out, or has too little eligible text if avoidable."""
        most = rounded(min(self.reaches.values()), 30)  # of 50 digits the last are not exact
        if not self.held_back(most):
            return most
        low, high = self.history.position, int(most) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.held_back(Decimal(middle)) else (middle, high)
        return Decimal(low) if low > self.history.position else most

    def fits(self, total: Decimal) -> bool:
        """Whether the request can be met at a total."""
        return (
            total > self.history.begin
            and not self.over(total)
            and not self.under(total)
            and not self.held_back(total)
            and self.timeline.last_place(total) < total
        )
