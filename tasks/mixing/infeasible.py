"""Explain why a request cannot be met, and propose the nearest feasible ones.

A proposal changes the total, the limits or the weights and keeps the rest, and is offered only if it is
feasible. Nearest means:

    total     no whole number between the requested one and this one is feasible
    limits    for each limiting source, the smallest max_repetition or largest min_epochs, in hundredths
    weights   a source that runs out gives all that it may, one that must give more gives that, and the others
              keep the proportions that they have among each other; each has a token at least
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from math import ceil, inf

from tokmill.tasks.mixing.feasible import SAME_PACE, Case, Limits
from tokmill.tasks.sampling import EXACT, capacity, rounded, water_fill

_ROUNDS = 200  # of the iteration that scales weights
_AROUND = 2
_BEYOND = Decimal("1e-6")  # aim this far beyond a limit, so that the iteration crosses it


def infeasible(case: Case, total: Decimal, *, given: bool) -> str:
    """Format the message that a request cannot be met: the reason, and the nearest feasible requests."""
    with localcontext(EXACT):
        ways = [
            *_other_total(case, total),
            *_other_limits(case, total, given),
            *_other_start(case, total),
            *_other_weights(case, total),
        ]
        feasible = "; or ".join(ways) or "nothing near; change limits and weights together"
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
    place = case.timeline.described(case.timeline.last_place(total, own_unit=True))
    return f"{mixture} end before the schedule's last change, at {place}"


def _other_total(case: Case, total: Decimal) -> list[str]:
    """The nearest total at which the shares are feasible."""
    largest = case.largest().to_integral_value(ROUND_FLOOR)
    smallest = max([*case.needs.values(), case.timeline.last_place(total)]).to_integral_value(ROUND_CEILING)
    guess = largest if total > largest else max(smallest, case.timeline.last_place(total) + 1)
    around = [
        guess + step for step in range(-_AROUND, _AROUND + 1)
    ]  # the guess may be off by one because of rounding
    fitting = [near for near in around if near > 0 and near != total and case.fits(near)]
    if not fitting:
        return []
    nearest = min(fitting, key=lambda near: abs(near - total))
    return [f"total_tokens={int(nearest)} at these shares"]


def _other_limits(case: Case, total: Decimal, given: bool) -> list[str]:
    """The nearest limits under which the total is feasible at these shares."""
    beyond = case.timeline.last_place(total).to_integral_value(ROUND_FLOOR) + 1
    at, needed = ("this total", total) if total >= beyond else (f"total_tokens={int(beyond)}", beyond)
    over, under = case.over(needed), case.under(needed)
    repetitions = {source: _repetition(case, source, need) for source, need in over.items()}
    held_back = case.held_back(needed)
    if inf in held_back.values():  # tokens are requested while nothing is eligible
        return []
    for source, pace in held_back.items():
        repetitions[source] = max(repetitions.get(source, Decimal(1)), Decimal(ceil(pace - SAME_PACE)))
    parts = []
    if repetitions:
        least = ", ".join(f"{source} = {times}" for source, times in repetitions.items())
        parts.append(f"max_repetition of at least {least}")
    if under:
        most = ", ".join(f"{source} = {_epochs(case, source, has)}" for source, has in under.items())
        parts.append(f"min_epochs of at most {most}")
    where = f" at {at}" if given or over else ""
    return [f"{' and '.join(parts)}{where}"] if parts else []


def _other_start(case: Case, total: Decimal) -> list[str]:
    """The nearest `curriculum.start` at which enough text is eligible."""
    pacing = case.pacing
    if pacing is None or not case.held_back(total) or case.over(total) or case.under(total):
        return []

    def with_start(thousandths: int) -> Case:
        competence = replace(pacing.competence, start=Decimal(thousandths) / 1000)
        return replace(case, pacing=replace(pacing, competence=competence))

    low, high = int(pacing.competence.start * 1000), 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if with_start(middle).fits(total) else (middle, high)
    return [f"curriculum.start of at least {Decimal(high) / 1000:f}"] if with_start(high).fits(total) else []


def _repetition(case: Case, source: str, needed: Decimal) -> Decimal:
    """The smallest limit, rounded up to two decimals, under which a source can give `needed` tokens."""
    tokens = (needed - case.slack).to_integral_value(ROUND_CEILING)
    return (tokens / case.limits.sizes[source]).quantize(Decimal("0.01"), ROUND_CEILING)


def _epochs(case: Case, source: str, amount: Decimal) -> Decimal:
    """The largest number of epochs, rounded down to two decimals, for which `amount` tokens are enough."""
    tokens = (amount + case.slack).to_integral_value(ROUND_FLOOR)
    return (tokens / case.limits.sizes[source]).quantize(Decimal("0.01"), ROUND_FLOOR)


def _other_weights(case: Case, total: Decimal) -> list[str]:
    """The nearest weights, at the total or at the nearest one that the limits allow for any weights."""
    if case.held_back(total):
        return []
    weights = dict(zip(case.timeline.sources, case.timeline.points[0][1], strict=True))
    weighted = {source: Decimal(has) for source, has in case.timeline.weighted().items()}
    most, least = (
        capacity(weighted, case.limits.caps),
        sum(_least(weighted, case.limits).values(), Decimal(0)),
    )
    wanted = max(min(total.to_integral_value(ROUND_FLOOR), most), least)
    if case.timeline.is_constant:
        return [
            f"total_tokens={int(wanted)} at the nearest weights {{{_nearest(weights, case.limits, wanted)}}}"
        ]
    factors = _factors(case, wanted)
    if factors is None:
        return []
    written = ", ".join(f"'{source}' × {factor:f}" for source, factor in factors.items())
    return [f"total_tokens={int(wanted)} with these weights, wherever they occur: {written}"]


def _least(weights: Mapping[str, Decimal], limits: Limits) -> dict[str, Decimal]:
    """The fewest tokens of each source: its floor, and at least one if it has a weight."""
    return {source: max(limits.floors[source], Decimal(weight > 0)) for source, weight in weights.items()}


def _nearest(weights: Mapping[str, Decimal], limits: Limits, total: Decimal) -> str:
    """The nearest shares: a source that runs out gives all that it may, the others divide the rest.

    They are written as whole tokens that add up to the total, so that they are exactly feasible.
    """
    filling = water_fill(weights, limits.caps, total, _least(weights, limits))
    tokens = {source: amount.to_integral_value(ROUND_FLOOR) for source, amount in filling.amounts.items()}
    by_rest = sorted(weights, key=lambda source: tokens[source] - filling.amounts[source])
    free = [source for source in by_rest if weights[source] > 0 and tokens[source] < limits.caps[source]]
    for source in free[: int(total - sum(tokens.values()))]:
        tokens[source] += 1
    return ", ".join(f"{source} = {int(amount)}" for source, amount in tokens.items())


def _factors(case: Case, total: Decimal) -> dict[str, Decimal] | None:
    """Factors for the weights of sources that get too much or too little; None if none are found."""
    factors: dict[str, Decimal] = {}
    for _ in range(_ROUNDS):
        written = {source: _written(factor) for source, factor in factors.items()}
        scaled = Case(case.timeline.scaled(written), case.limits)
        if scaled.fits(total):
            return written
        over, under = scaled.over(total), scaled.under(total)
        if not all((over | under).values()):
            return None
        for source, asked in over.items():
            nearer = case.limits.caps[source] / asked * (1 - _BEYOND)
            factors[source] = factors.get(source, Decimal(1)) * nearer
        for source, asked in under.items():
            nearer = case.limits.floors[source] / asked * (1 + _BEYOND)
            factors[source] = factors.get(source, Decimal(1)) * nearer
    return None


def _written(factor: Decimal) -> Decimal:
    """A factor rounded to six digits away from 1, so that rounding keeps the request feasible."""
    digits = Decimal(1).scaleb(factor.adjusted() - 5)
    return factor.quantize(digits, ROUND_FLOOR if factor < 1 else ROUND_CEILING)
