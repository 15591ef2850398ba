"""Check whether a request can be met, and propose the nearest feasible ones.

A proposal changes the total, the limits, the weights or the curriculum's start, keeps the rest, and is
offered only if it is feasible.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from math import ceil, inf
from typing import Self

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Competence
from tokmill.tasks.mixing.lengths import NOTHING, History
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.schedule import Timeline
from tokmill.tasks.sampling import EXACT, capacity, check_sources, decimal, rounded, water_fill

_EXACT_SLACK = Decimal("1e-15")  # tokens; less is a rounding error, since totals have 30 digits
_CARRIED_SLACK = Decimal("1e-9")  # the same with counts carried over, which are doubles
_AROUND = 2
_HUNDREDTH = Decimal("0.01")
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
            caps, floors = (
                {
                    source: (decimal(times[source]) * size).to_integral_value(mode)
                    for source, size in sizes.items()
                }
                for times, mode in ((repetitions, ROUND_FLOOR), (epochs, ROUND_CEILING))
            )
        return cls(sizes, repetitions, epochs, caps, floors)


def _by_source(
    limit: float | Mapping[str, float], sizes: Mapping[str, int], default: float, what: str
) -> dict[str, float]:
    if not isinstance(limit, Mapping):
        return dict.fromkeys(sizes, limit)
    check_sources(what, limit, sizes, MixingError, "mix")
    return dict.fromkeys(sizes, default) | dict(limit)


@dataclass(frozen=True)
class Pacing:
    """A competence function and the sources that it paces."""

    competence: Competence
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A request for any total of the whole run: weights over the run, limits, pacing and history."""

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
            if self.timeline.is_relative:
                drawn = [source for source in sources if self._shares[source]]
                return {source: self._total(source, tokens[source], horizon) for source in drawn}
            curves = self.timeline.curves(horizon)
            shifts = self.history.shifts(curves)
            totals = {source: curves.reaches(source, tokens[source] + shifts[source]) for source in sources}
            return {source: horizon if total is None else total for source, total in totals.items()}

    def _total(self, source: str, tokens: Decimal, horizon: Decimal) -> Decimal:
        """The total at which `tokens` are requested of a source, if positions are fractions of the total.

        If the request changed in an earlier mixture, it is found by binary search over whole numbers.
        """
        direct = tokens / self._shares[source]
        if not self.history.position:
            return direct
        if direct > self.history.begin and abs(self.amounts(direct)[source] - tokens) < self.slack:
            return direct
        most = tokens + self.slack
        return Decimal(
            _last(self.history.position, int(horizon), lambda n: self.amounts(Decimal(n))[source] <= most)
        )

    def amounts(self, total: Decimal) -> dict[str, Decimal]:
        """Tokens requested of each source at a total; earlier requests count as they were made."""
        with localcontext(EXACT):
            if self.timeline.is_relative and not self.history.position:
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
        begin = self.history.position
        last = _last(begin, int(most) + 1, lambda n: not self.held_back(Decimal(n)))
        return Decimal(last) if last > begin else most

    def fits(self, total: Decimal) -> bool:
        """Whether the request can be met at a total."""
        return (
            total > self.history.begin
            and not self.over(total)
            and not self.under(total)
            and not self.held_back(total)
            and self.timeline.last_place(total) < total
        )


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last whole number below `high` for which something holds; `low` if it does for none above that."""
    return low + bisect_left(range(low + 1, high), True, key=lambda number: not holds(number))


def infeasible(case: Case, total: Decimal, *, given: bool) -> str:
    """Format the message that a request cannot be met: the reason, and the nearest feasible requests."""
    with localcontext(EXACT):
        ways = (
            _other_total(case, total),
            _other_limits(case, total, given),
            _other_start(case, total),
            _other_weights(case, total),
        )
        feasible = "; or ".join(filter(None, ways)) or "nothing near; change limits and weights together"
        return f"mix: {_problem(case, total, given)}. Feasible: {feasible}"


def _problem(case: Case, total: Decimal, given: bool) -> str:
    limits, over, under = case.limits, case.over(total), case.under(total)
    mixture = f"total_tokens={int(total)}" if given else f"the {int(total)} tokens that max_repetition allows"
    if over:
        first = min(over, key=lambda source: case.reaches[source])
        return (
            f"{mixture} needs {over[first].to_integral_value(ROUND_CEILING)} tokens of '{first}' (share "
            f"{rounded(over[first] / total, 6)}), which has {limits.sizes[first]} and may be drawn "
            f"{limits.repetitions[first]:g} times"
        )
    if under:
        first = max(under, key=lambda source: case.needs[source])
        return (
            f"min_epochs={limits.epochs[first]:g} of '{first}' requires {limits.floors[first]} tokens of it, "
            f"but its share of {rounded(under[first] / total, 6)} of {mixture} is {int(under[first])}"
        )
    if held_back := case.held_back(total):
        first = max(held_back, key=lambda source: held_back[source] / limits.repetitions[source])
        why = (
            "none of it is eligible where some is requested"
            if held_back[first] == inf
            else f"its eligible documents would have to be drawn {held_back[first]:.4g} times, and may be "
            f"{ceil(limits.repetitions[first])} times"
        )
        return f"the curriculum makes too little of '{first}' eligible for {mixture}: {why}"
    place = case.timeline.params.described(case.timeline.last_change())
    return f"{mixture} end before the schedule's last change, at {place}"


def _other_total(case: Case, total: Decimal) -> str:
    """The nearest total at which the shares are feasible; the guess may be off by one because of rounding."""
    largest, last = case.largest().to_integral_value(ROUND_FLOOR), case.timeline.last_place(total)
    smallest = max([*case.needs.values(), last]).to_integral_value(ROUND_CEILING)
    guess = largest if total > largest else max(smallest, last + 1)
    around = (guess + step for step in range(-_AROUND, _AROUND + 1))
    fitting = [near for near in around if near > 0 and near != total and case.fits(near)]
    nearest = min(fitting, key=lambda near: abs(near - total), default=None)
    return "" if nearest is None else f"total_tokens={int(nearest)} at these shares"


def _other_limits(case: Case, total: Decimal, given: bool) -> str:
    beyond = case.timeline.last_place(total).to_integral_value(ROUND_FLOOR) + 1
    at, needed = ("this total", total) if total >= beyond else (f"total_tokens={int(beyond)}", beyond)
    over, under, held_back = case.over(needed), case.under(needed), case.held_back(needed)
    if inf in held_back.values():  # tokens are requested while nothing is eligible
        return ""
    sizes = case.limits.sizes
    repetitions = {s: _epochs(need - case.slack, sizes[s], ROUND_CEILING) for s, need in over.items()}
    for source, pace in held_back.items():
        repetitions[source] = max(repetitions.get(source, Decimal(1)), Decimal(ceil(pace - SAME_PACE)))
    floors = {s: _epochs(amount + case.slack, sizes[s], ROUND_FLOOR) for s, amount in under.items()}
    parts = [
        f"{name} of at {bound} {', '.join(f'{source} = {times}' for source, times in limits.items())}"
        for name, bound, limits in (("max_repetition", "least", repetitions), ("min_epochs", "most", floors))
        if limits
    ]
    return " and ".join(parts) + (f" at {at}" if parts and (given or over) else "")


def _epochs(tokens: Decimal, size: int, rounding: str) -> Decimal:
    """How often a source is drawn for these tokens, rounded up or down to hundredths."""
    return (tokens.to_integral_value(rounding) / size).quantize(_HUNDREDTH, rounding)


def _other_start(case: Case, total: Decimal) -> str:
    pacing = case.pacing
    if pacing is None or not case.held_back(total) or case.over(total) or case.under(total):
        return ""

    def fits(thousandths: int) -> bool:
        competence = replace(pacing.competence, start=Decimal(thousandths) / 1000)
        return replace(case, pacing=replace(pacing, competence=competence)).fits(total)

    least = 1 + _last(int(pacing.competence.start * 1000), 1000, lambda start: not fits(start))
    return f"curriculum.start of at least {Decimal(least) / 1000:f}" if fits(least) else ""


def _other_weights(case: Case, total: Decimal) -> str:
    """The nearest constant weights, at the total or at the nearest one that the limits allow for any weights.

    They are written as whole tokens that add up to the total, so that they are exactly feasible.
    """
    if case.held_back(total) or not case.timeline.is_constant:
        return ""
    weights = dict(zip(case.timeline.sources, case.timeline.points[0][1], strict=True))
    caps = case.limits.caps
    floors = {source: max(case.limits.floors[source], Decimal(w > 0)) for source, w in weights.items()}
    most, least = capacity(weights, caps), sum(floors.values(), Decimal(0))
    wanted = max(min(total.to_integral_value(ROUND_FLOOR), most), least)
    amounts = water_fill(weights, caps, wanted, floors).amounts
    tokens = {source: amount.to_integral_value(ROUND_FLOOR) for source, amount in amounts.items()}
    by_rest = sorted(weights, key=lambda source: tokens[source] - amounts[source])
    free = [source for source in by_rest if weights[source] > 0 and tokens[source] < caps[source]]
    for source in free[: int(wanted - sum(tokens.values()))]:
        tokens[source] += 1
    written = ", ".join(f"{source} = {int(amount)}" for source, amount in tokens.items())
    return f"total_tokens={int(wanted)} at the nearest weights {{{written}}}"
