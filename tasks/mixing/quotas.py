"""Decide how many tokens of each source a mixture takes, and along which curve.

The model. The rule gives every source a share of the tokens (see `tasks.sampling`), or a schedule does (see
`tasks.mixing.schedule`). A source of n tokens may be drawn up to `max_repetition` × n, and must be drawn
`min_epochs` × n. Shares are fixed: without `total_tokens` the mixture is as large as they allow, and a total
at which a source runs out, or is drawn too little, is an error. Only 'unimax' adapts the shares: tokens that
a source cannot give are taken from the others, and without `total_tokens` the mixture is as large as the
text, or as the limits allow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from math import ceil

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Curves
from tokmill.tasks.mixing.draw import Stop
from tokmill.tasks.mixing.feasible import SAME_PACE, Case, Limits, Pacing
from tokmill.tasks.mixing.infeasible import infeasible
from tokmill.tasks.mixing.lengths import NOTHING, History
from tokmill.tasks.mixing.params import MixParams, RampParams, SchedulePoint
from tokmill.tasks.mixing.schedule import Ramp, Timeline
from tokmill.tasks.sampling import (
    EXACT,
    capacity,
    check_sources,
    explicit_weights,
    proportions,
    raw_weights,
    water_fill,
)

_THOUSANDTH = Decimal("0.001")  # of a token: the precision of counts carried over from an earlier mixture


def timeline_of(params: MixParams, sizes: Mapping[str, int]) -> Timeline:
    """The weights over the run for sources of `sizes` tokens."""
    if params.schedule_unit == "steps" and params.sequence_length is None:
        raise MixingError(
            "mix: schedule_unit='steps' needs sequence_length, tokens per sequence; use e.g. that of [pack]"
        )
    sources = tuple(sizes)
    points = tuple(
        (params.place(point.start), tuple(_weights(point, sizes).values())) for point in params.schedule
    ) or ((Decimal(0), tuple(raw_weights(params, sizes, MixingError, "mix").values())),)
    return Timeline(
        sources=sources,
        points=points,
        change=params.change,
        ramps=tuple(_ramps(params, sources)),
        relative=params.schedule_unit == "fraction",
        described=params.described,
    )


def _weights(point: SchedulePoint, sizes: Mapping[str, int]) -> dict[str, Decimal]:
    what = f"schedule: the {'weights' if point.weights else 'proportions'} at {point.start:g}"
    return explicit_weights(what, point.given, sizes, MixingError, "mix")


def _ramps(params: MixParams, sources: tuple[str, ...]) -> Iterator[Ramp]:
    for what, ramps in (("warmup", params.warmup), ("annealing", params.annealing)):
        check_sources(f"{what}", ramps, sources, MixingError, "mix")
        for source, ramp in ramps.items():
            yield _ramp(params, sources.index(source), ramp, warms_up=what == "warmup")


def _ramp(params: MixParams, source: int, ramp: RampParams, *, warms_up: bool) -> Ramp:
    factor = Decimal(repr(ramp.factor))
    before, after = (factor, Decimal(1)) if warms_up else (Decimal(1), factor)
    return Ramp(source, params.place(ramp.start), params.place(ramp.stop), before, after, ramp.change)


@dataclass(frozen=True)
class Quota:
    """The tokens that one source has to give.

    Attributes:
        share: requested share of the mixture's tokens; shares add up to 1.
        run_tokens: tokens to draw in the whole run.
        given_tokens: tokens drawn before this mixture.
        least_tokens: fewest tokens to draw in the whole run: `min_epochs` × its tokens, rounded up.
        most_tokens: most tokens to draw in the whole run: `max_repetition` × its tokens, rounded down;
            at most `run_tokens` for a source without a share at the end of the run.
        max_repetition: the most times that it may be drawn.
        min_epochs: the fewest times that it must be drawn.
        copies: the most times that any of its documents is drawn.
        limits: whether its limit keeps its share, or the total, from being larger.
    """

    share: Decimal
    run_tokens: int
    given_tokens: int
    least_tokens: int
    most_tokens: int
    max_repetition: float
    min_epochs: float
    copies: int
    limits: bool

    @property
    def num_tokens(self) -> int:
        """Tokens to draw in this mixture; 0 only if the share is 0, or all were drawn before."""
        return max(0, self.run_tokens - self.given_tokens)

    def stop(self, *, splits: bool) -> Stop:
        """The stop of the drawing; with `splits`, the last document is cut at the quota."""
        return Stop(self.run_tokens, self.most_tokens, self.given_tokens, self.least_tokens, splits=splits)


@dataclass(frozen=True)
class Asked:
    """The settled request: the tokens of all sources, in all and over the run."""

    quotas: dict[str, Quota]  # quota of each source
    curves: Curves  # request curves over the whole run
    history: History  # tokens and documents consumed before this mixture


def asked(params: MixParams, sizes: Mapping[str, int], history: History = NOTHING) -> Asked:
    """Settle a request on sources of `sizes` tokens, some of which may have been consumed before."""
    timeline = timeline_of(params, sizes)
    _check_tokens(timeline, sizes)
    limits = Limits.of(params, sizes, timeline.weighted())
    if params.method == "unimax" and not params.is_scheduled:
        return _giving_way(params, timeline, limits, history)
    return _exact(params, timeline, limits, history)


def _exact(params: MixParams, timeline: Timeline, limits: Limits, history: History) -> Asked:
    """Settle a request with fixed shares."""
    case = Case(timeline, limits, _pacing(params, timeline), history)
    total = case.largest() if params.total_tokens is None else Decimal(params.total_tokens)
    _check_anything_left(total, history, given=params.total_tokens is not None)
    if not case.fits(total):
        raise MixingError(infeasible(case, total, given=params.total_tokens is not None))
    limiting = [source for source, reach in case.reaches.items() if abs(reach - total) < case.slack]
    if total < min(case.reaches.values()) and params.total_tokens is None:  # the curriculum limits the total
        limiting = list(case.held_back(total + 1))
    return _settled(case, total, limiting)


def _check_anything_left(total: Decimal, history: History, *, given: bool) -> None:
    if total <= history.begin:
        what = (
            f"total_tokens={int(total)}" if given else f"the {int(total)} tokens that max_repetition allows"
        )
        raise MixingError(
            f"mix: {what} must be more than the {history.begin} that were consumed; total_tokens are "
            "those of the whole run, so raise them or max_repetition"
        )


def _pacing(params: MixParams, timeline: Timeline) -> Pacing | None:
    if params.curriculum is None:
        return None
    check_sources("curriculum.sources", params.curriculum.sources, timeline.sources, MixingError, "mix")
    if params.paced is None:
        return None
    return Pacing(params.paced.function(), params.paced.sources or timeline.sources)


def _giving_way(params: MixParams, timeline: Timeline, limits: Limits, history: History) -> Asked:
    """Settle a request whose shares adapt to the limits."""
    weights = dict(zip(timeline.sources, timeline.points[0][1], strict=True))
    least, most = sum(limits.floors.values(), Decimal(0)), capacity(weights, limits.caps)
    text = Decimal(sum(limits.sizes.values()))
    total = min(max(text, least), most) if params.total_tokens is None else Decimal(params.total_tokens)
    if total > most:
        raise MixingError(
            f"mix: total_tokens={total} is more than max_repetition allows; use at most {int(most)}, or a "
            "larger max_repetition"
        )
    if total < least:
        raise MixingError(
            f"mix: total_tokens={total} is less than min_epochs requires; use at least {int(least)}, or a "
            "smaller min_epochs"
        )
    _check_anything_left(total, history, given=params.total_tokens is not None)
    filling = water_fill(weights, limits.caps, total, limits.floors)
    shares = tuple(filling.amounts.values())
    given = Timeline(timeline.sources, ((Decimal(0), shares),))
    case = Case(given, limits, _pacing(params, timeline), history)
    if not case.fits(total):
        raise MixingError(infeasible(case, total, given=params.total_tokens is not None))
    return _settled(case, total, filling.capped)


def _check_tokens(timeline: Timeline, sizes: Mapping[str, int]) -> None:
    weighted = timeline.weighted()
    for source, has_weight in weighted.items():
        if has_weight and not sizes[source]:
            raise MixingError(
                f"mix: source '{source}' has a weight but no tokens; set weights.{source}=0 or add text"
            )
    if not any(weighted.values()):
        raise MixingError(
            "mix: the encoded sources hold no tokens; give them text or lower encode.min_tokens"
        )


def _settled(case: Case, total: Decimal, limiting: tuple[str, ...] | list[str]) -> Asked:
    curves, limits, history = case.timeline.curves(total), case.limits, case.history
    amounts, paces = case.amounts(total), case.paces(total)
    given = {source: history.given.get(source, 0) for source in amounts}
    shares = proportions({source: max(Decimal(0), amounts[source] - given[source]) for source in amounts})
    last = curves.intervals[-1]
    quotas = {}
    for index, (source, tokens) in enumerate(_whole(amounts).items()):
        ends_early = tokens > 0 and not last.first[index] and not last.last[index]
        pace = paces.get(source, tokens / max(1, limits.sizes[source]))
        quotas[source] = Quota(
            share=shares[source],
            run_tokens=tokens,
            given_tokens=given[source],
            least_tokens=min(tokens, int(limits.floors[source])),
            most_tokens=tokens if ends_early else int(limits.caps[source]),
            max_repetition=limits.repetitions[source],
            min_epochs=limits.epochs[source],
            copies=max(1, ceil(pace - SAME_PACE)),
            limits=source in limiting,
        )
    return Asked(quotas, curves, history)


def _whole(amounts: Mapping[str, Decimal]) -> dict[str, int]:
    """Round `amounts` to whole tokens that add up to their rounded sum: the largest fractions are rounded up.

    Ties go to the first source. A positive amount becomes at least 1.
    """
    with localcontext(EXACT):
        near = {source: max(Decimal(0), amount).quantize(_THOUSANDTH) for source, amount in amounts.items()}
        tokens = {source: int(amount) for source, amount in near.items()}
        lacking = int(sum(near.values(), Decimal(0)).to_integral_value(ROUND_HALF_EVEN)) - sum(
            tokens.values()
        )
        by_rest = sorted(near, key=lambda source: tokens[source] - near[source])
        for source in by_rest[:lacking]:
            tokens[source] += 1
        return {source: max(int(amounts[source] > 0), number) for source, number in tokens.items()}
