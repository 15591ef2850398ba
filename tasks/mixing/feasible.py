"""Whether a request can be met: what a mixture asks of every source, against what the source may give."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from math import ceil

from tokmill.tasks.mixing.competence import Competence
from tokmill.tasks.mixing.history import NOTHING, History
from tokmill.tasks.mixing.limits import Limits
from tokmill.tasks.mixing.schedule import Timeline
from tokmill.tasks.sampling import EXACT, rounded

_EXACT_SLACK = Decimal("1e-15")  # tokens; what is less is rounding, since totals have 30 digits
_CARRIED_SLACK = Decimal("1e-9")  # likewise where something was carried over from another mixture, as doubles
SAME_PACE = 1e-9


@dataclass(frozen=True)
class Pacing:
    """A competence function and the sources that it paces."""

    competence: Competence
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """Weights over the run, limits, what paces the sources and what was before, for any total.

    Tokens of a source, and totals, are those of the whole run.
    """

    timeline: Timeline
    limits: Limits
    pacing: Pacing | None = None
    history: History = NOTHING

    @property
    def slack(self) -> Decimal:
        """Tokens that are too few to tell anything: rounding."""
        return _CARRIED_SLACK if self.history.position else _EXACT_SLACK

    @cached_property
    def reaches(self) -> dict[str, Decimal]:
        """The largest total at which each source that has a weight does not run out."""
        return self._totals(self.limits.caps)

    @cached_property
    def needs(self) -> dict[str, Decimal]:
        """The smallest total at which each source is drawn often enough, as far as it can be."""
        return self._totals(self.limits.floors)

    def _totals(self, tokens: Mapping[str, Decimal]) -> dict[str, Decimal]:
        """The total at which so many tokens are asked of each source."""
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
        """The total at which so many tokens are asked of a source, if positions are fractions of it.

        With another request before it is searched for, among whole numbers.
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
        """Tokens asked of each source at a total; what was before counts as it was asked then."""
        with localcontext(EXACT):
            if self.timeline.relative and not self.history.position:
                return {source: share * total for source, share in self._shares.items()}
            curves = self.timeline.curves(total)
            shifts = self.history.shifts(curves)
            return {source: asked - shifts[source] for source, asked in curves.requested(total).items()}

    @cached_property
    def _shares(self) -> dict[str, Decimal]:
        """The part of all tokens that each source has, where that does not depend on the total."""
        return self.timeline.curves(Decimal(1)).requested(Decimal(1))

    def over(self, total: Decimal) -> dict[str, Decimal]:
        """The sources that run out at a total, with the tokens asked of them."""
        caps = self.limits.caps
        return {s: asked for s, asked in self.amounts(total).items() if asked > caps[s] + self.slack}

    def under(self, total: Decimal) -> dict[str, Decimal]:
        """The sources that are not drawn enough at a total, with the tokens asked of them."""
        floors = self.limits.floors
        return {s: asked for s, asked in self.amounts(total).items() if asked < floors[s] - self.slack}

    def held_back(self, total: Decimal) -> dict[str, float]:
        """The sources of which too little is eligible at a total, with their paces (see `competence`)."""
        paces = self.paces(total)
        return {s: pace for s, pace in paces.items() if pace > ceil(self.limits.repetitions[s]) + SAME_PACE}

    def paces(self, total: Decimal) -> dict[str, float]:
        """How often the documents of each paced source that is drawn must be drawn at least."""
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
        """The largest total at which no source runs out, nor is held back if that can be avoided."""
        most = rounded(min(self.reaches.values()), 30)  # what has 50 digits is not exact in the last
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
