"""Decide how many tokens of each source a mixture takes, along which curve, and which requests it misses.

Shares are fixed: without `total_tokens` the mixture is as large as they allow, and a total at which a source
runs out, or is drawn too little, is an error. Only 'unimax' adapts the shares to the limits.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal, localcontext
from math import ceil

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.curves import Competence, Curves
from tokmill.tasks.mixing.draw import Draw
from tokmill.tasks.mixing.feasible import SAME_PACE, Case, Limits, Pacing, infeasible
from tokmill.tasks.mixing.lengths import NOTHING, History
from tokmill.tasks.mixing.params import CurriculumParams, MixParams
from tokmill.tasks.mixing.schedule import Timeline
from tokmill.tasks.sampling import EXACT, capacity, check_sources, decimal, proportions, water_fill

_THOUSANDTH = Decimal("0.001")  # of a token: the precision of counts carried over from an earlier mixture


@dataclass(frozen=True)
class Quota:
    """The tokens that one source has to give."""

    share: Decimal  # requested share of the mixture's tokens; shares add up to 1
    run_tokens: int  # tokens to draw in the whole run
    given_tokens: int  # tokens drawn before this mixture
    least_tokens: int  # fewest tokens to draw in the whole run: `min_epochs` × its tokens, rounded up
    most_tokens: int  # most tokens: `max_repetition` × its tokens, or less if it has no share in the end
    max_repetition: float  # the most times that it may be drawn
    min_epochs: float  # the fewest times that it must be drawn
    copies: int  # the most times that any of its documents is drawn
    limits: bool  # whether its limit keeps its share, or the total, from being larger

    @property
    def num_tokens(self) -> int:
        """Tokens to draw in this mixture; 0 only if the share is 0, or all were drawn before."""
        return max(0, self.run_tokens - self.given_tokens)

    def draw(self, *, splits: bool) -> Draw:
        """What draws them; with `splits`, the last document is cut at the quota."""
        return Draw(self.run_tokens, self.most_tokens, self.given_tokens, self.least_tokens, splits)


@dataclass(frozen=True)
class Settlement:
    """The settled request: the tokens of all sources, in all and over the run."""

    quotas: dict[str, Quota]  # quota of each source
    curves: Curves  # request curves over the whole run
    history: History  # tokens and documents consumed before this mixture


def settle(params: MixParams, sizes: Mapping[str, int], history: History = NOTHING) -> Settlement:
    """Settle a request on sources of `sizes` tokens, some of which may have been consumed before."""
    timeline = Timeline.of(params, sizes)
    _check_tokens(timeline, sizes)
    limits = Limits.of(params, sizes, timeline.weighted())
    if params.method == "unimax" and not params.is_scheduled:
        return _adapted(params, timeline, limits, history)
    case = Case(timeline, limits, _pacing(params, timeline), history)
    total = case.largest() if params.total_tokens is None else Decimal(params.total_tokens)
    _check_total(params, case, total)
    limiting: Collection[str] = [s for s, reach in case.reaches.items() if abs(reach - total) < case.slack]
    if total < min(case.reaches.values()) and params.total_tokens is None:  # the curriculum limits the total
        limiting = case.held_back(total + 1)
    return _settled(case, total, limiting)


def _adapted(params: MixParams, timeline: Timeline, limits: Limits, history: History) -> Settlement:
    weights = dict(zip(timeline.sources, timeline.points[0][1], strict=True))
    least, most = sum(limits.floors.values(), Decimal(0)), capacity(weights, limits.caps)
    text = Decimal(sum(limits.sizes.values()))
    total = min(max(text, least), most) if params.total_tokens is None else Decimal(params.total_tokens)
    more = f"more than max_repetition allows; use at most {int(most)}, or a larger max_repetition"
    less = f"less than min_epochs requires; use at least {int(least)}, or a smaller min_epochs"
    if not least <= total <= most:
        raise MixingError(f"mix: total_tokens={total} is {more if total > most else less}")
    filling = water_fill(weights, limits.caps, total, limits.floors)
    adapted = replace(timeline, points=((Decimal(0), tuple(filling.amounts.values())),))
    case = Case(adapted, limits, _pacing(params, timeline), history)
    _check_total(params, case, total)
    return _settled(case, total, filling.capped)


def _check_total(params: MixParams, case: Case, total: Decimal) -> None:
    """Reject a total at which nothing is left to draw, or the request cannot be met."""
    given, begin = params.total_tokens is not None, case.history.begin
    if total <= begin:
        what = (
            f"total_tokens={int(total)}" if given else f"the {int(total)} tokens that max_repetition allows"
        )
        raise MixingError(
            f"mix: {what} must be more than the {begin} that were consumed; total_tokens are "
            "those of the whole run, so raise them or max_repetition"
        )
    if not case.fits(total):
        raise MixingError(infeasible(case, total, given=given))


def _pacing(params: MixParams, timeline: Timeline) -> Pacing | None:
    if rules := params.curriculum:
        check_sources("curriculum.sources", rules.sources, timeline.sources, MixingError, "mix")
    paced = rules is not None and rules.order == "competence"
    return Pacing(competence_of(rules), rules.sources or timeline.sources) if rules and paced else None


def competence_of(rules: CurriculumParams) -> Competence:
    """The competence function of a curriculum."""
    return Competence(rules.competence, decimal(rules.start), decimal(rules.until), rules.stairs)


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


def _settled(case: Case, total: Decimal, limiting: Collection[str]) -> Settlement:
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
    return Settlement(quotas, curves, history)


def _whole(amounts: Mapping[str, Decimal]) -> dict[str, int]:
    """Round `amounts` to whole tokens that add up to their rounded sum: the largest fractions are rounded up.

    Ties go to the first source. A positive amount becomes at least 1.
    """
    with localcontext(EXACT):
        near = {source: max(Decimal(0), amount).quantize(_THOUSANDTH) for source, amount in amounts.items()}
        tokens = {source: int(amount) for source, amount in near.items()}
        whole = int(sum(near.values(), Decimal(0)).to_integral_value(ROUND_HALF_EVEN))
        by_rest = sorted(near, key=lambda source: tokens[source] - near[source])
        for source in by_rest[: whole - sum(tokens.values())]:
            tokens[source] += 1
        return {source: max(int(amounts[source] > 0), number) for source, number in tokens.items()}


def missed_requests(
    tolerance: float, quotas: Mapping[str, Quota], given: Mapping[str, int], *, refused: bool
) -> list[str]:
    """Return one sentence for each request that is missed by more than the tolerance, sources first.

    Whole documents may end below or above a quota; a difference of one token per source concerned is allowed.
    Tokens are those of the whole run, so that a continued mixture misses the same requests as the whole. With
    `refused`, they raise a MixingError, with the nearest settings that are accepted.
    """
    with localcontext(EXACT):
        missed = {
            words: Decimal(abs(gives - asks)) / max(1, asks)
            for words, asks, gives, always in _requests(quotas, given)
            if abs(gives - asks) > max(Decimal(always), decimal(tolerance) * asks)
        }
        if missed and refused:
            needed = max(missed.values()).quantize(Decimal("0.0001"), ROUND_CEILING)
            raise MixingError(
                f"mix: {'; '.join(missed)}: documents are whole, and tolerance={tolerance:g}. Feasible: "
                "long_documents='split', which ends each source's last document at its quota; or tolerance "
                f"of at least {needed:f}; or on_miss='warn'"
            )
    return [*missed]


def _requests(quotas: Mapping[str, Quota], given: Mapping[str, int]) -> Iterator[tuple[str, int, int, int]]:
    """Yield each request in words, with what it asks, what is given, and a difference that never counts."""
    wanted_in_all, given_in_all = sum(quota.run_tokens for quota in quotas.values()), sum(given.values())
    for source, quota in quotas.items():
        share = Decimal(given[source]) / max(1, given_in_all)
        wanted = Decimal(quota.run_tokens) / max(1, wanted_in_all)
        words = (
            f"'{source}' gives {given[source]} tokens ({share:.2%}), and {quota.run_tokens} ({wanted:.2%}) "
            "were asked for"
        )
        yield words, quota.run_tokens, given[source], 1
    for source, quota in quotas.items():
        words = (
            f"min_epochs={quota.min_epochs:g} of '{source}' asks for {quota.least_tokens} tokens of it, and "
            f"{given[source]} come"
        )
        if given[source] < quota.least_tokens:
            yield words, quota.least_tokens, given[source], 1
    words = f"{given_in_all} tokens come, and {wanted_in_all} were asked for"
    yield words, wanted_in_all, given_in_all, len(quotas)
