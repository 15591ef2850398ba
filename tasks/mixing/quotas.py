"""How many tokens of each source a mixture takes.

The model. The rule gives every source a share of the tokens (see `tasks.sampling`). A source of n tokens
may be drawn up to `max_repetition` × n. Shares from 'weights', 'temperature' and 'proportional' are law:
without `total_tokens` the mixture is as large as they allow, and a total at which a source runs out is
refused. 'unimax' is the rule that gives way: what a source cannot give is taken from the others, and without
`total_tokens` the mixture is as large as the text, or as the limits allow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext

from tasks.errors import MixingError
from tasks.sampling import (
    EXACT,
    SamplingParams,
    capacity,
    check_sources,
    decimal,
    proportions,
    raw_weights,
    rounded,
    water_fill,
)


@dataclass(frozen=True)
class Quota:
    """What one source is to give.

    Attributes:
        share: its part of the mixture's tokens, as asked for; shares add up to 1.
        num_tokens: tokens to draw; 0 only where the share is 0.
        most_tokens: tokens that may be drawn: `max_repetition` × what it has, rounded down.
        limits: whether its limit is what keeps its share, or the total, from being larger.
    """

    share: Decimal
    num_tokens: int
    most_tokens: int
    limits: bool


@dataclass(frozen=True)
class Request:
    """A rule with its limits, applied to sources of `sizes` tokens."""

    rule: SamplingParams
    sizes: Mapping[str, int]
    repetitions: Mapping[str, float]
    total_tokens: int | None

    def quotas(self) -> dict[str, Quota]:
        """Tokens to draw from every source, in the order of `sizes`.

        Raises:
            MixingError: a weight or a limit is for an unknown source, a source with a weight has no tokens,
                or the total is more than the limits allow; the message says what would be feasible.
        """
        check_sources("max_repetition", self.repetitions, self.sizes, MixingError, "mix")
        weights = raw_weights(self.rule, self.sizes, MixingError, "mix")
        _check_tokens(weights, self.sizes)
        caps = {source: self._cap(source) for source in self.sizes}
        return self._giving_way(weights, caps) if self.rule.method == "unimax" else self._exact(weights, caps)

    def _cap(self, source: str) -> Decimal:
        with localcontext(EXACT):
            allowed = decimal(self.repetitions.get(source, 1.0)) * self.sizes[source]
            return allowed.to_integral_value(ROUND_FLOOR)

    def _exact(self, weights: Mapping[str, Decimal], caps: Mapping[str, Decimal]) -> dict[str, Quota]:
        with localcontext(EXACT):
            whole = sum(weights.values())
            totals = {
                source: caps[source] * whole / weight for source, weight in weights.items() if weight > 0
            }
            largest = min(totals.values())
            total = Decimal(self.total_tokens) if self.total_tokens is not None else largest
            if total > largest:
                raise MixingError(self._infeasible(weights, caps, totals))
            amounts = {source: weight / whole * total for source, weight in weights.items()}
        limits = [source for source, reach in totals.items() if reach == total]
        return _quotas(amounts, caps, limits)

    def _giving_way(self, weights: Mapping[str, Decimal], caps: Mapping[str, Decimal]) -> dict[str, Quota]:
        most = capacity(weights, caps)
        if self.total_tokens is not None and self.total_tokens > most:
            raise MixingError(
                f"mix: total_tokens={self.total_tokens} is more than max_repetition allows; use at most "
                f"{int(most)}, or a larger max_repetition"
            )
        total = Decimal(sum(self.sizes.values())) if self.total_tokens is None else Decimal(self.total_tokens)
        filling = water_fill(weights, caps, min(total, most))
        return _quotas(filling.amounts, caps, filling.capped)

    def _infeasible(
        self, weights: Mapping[str, Decimal], caps: Mapping[str, Decimal], totals: Mapping[str, Decimal]
    ) -> str:
        """Say which source runs out first, and three ways to a request that can be met."""
        total = Decimal(self.total_tokens or 0)
        whole = sum(weights.values())
        first = min(totals, key=lambda source: totals[source])
        amounts = {source: weight / whole * total for source, weight in weights.items()}
        needed = {source: amounts[source] for source, reach in totals.items() if reach < total}
        limits = ", ".join(
            f"{source} = {self._repetition_for(source, need)}" for source, need in needed.items()
        )
        return (
            f"mix: total_tokens={total} needs {needed[first].to_integral_value(ROUND_CEILING)} tokens of "
            f"'{first}' (share {rounded(weights[first] / whole, 6)}), which has {self.sizes[first]} and "
            f"may be drawn {self.repetitions.get(first, 1.0):g} times. Feasible: "
            f"total_tokens={int(totals[first])} at these shares; or max_repetition of at least {limits} at "
            f"this total; or {_nearest(weights, caps, total)}"
        )

    def _repetition_for(self, source: str, needed: Decimal) -> Decimal:
        """The smallest limit, to two decimals upward, under which `source` can give `needed` tokens."""
        tokens = needed.to_integral_value(ROUND_CEILING)
        return (tokens / self.sizes[source]).quantize(Decimal("0.01"), ROUND_CEILING)


def _nearest(weights: Mapping[str, Decimal], caps: Mapping[str, Decimal], total: Decimal) -> str:
    """The feasible shares that differ least: who runs out gives all it may, the others share the rest.

    They are written as whole tokens that add up to the total, so that they are feasible to the last token.
    """
    total = min(total, capacity(weights, caps))
    filling = water_fill(weights, caps, total)
    tokens = {source: amount.to_integral_value(ROUND_FLOOR) for source, amount in filling.amounts.items()}
    free = [source for source in weights if weights[source] > 0 and source not in filling.capped]
    for source in free[: int(total - sum(tokens.values()))]:
        tokens[source] += 1
    written = ", ".join(f"{source} = {amount}" for source, amount in tokens.items())
    return f"total_tokens={total} at the nearest weights {{{written}}}"


def _check_tokens(weights: Mapping[str, Decimal], sizes: Mapping[str, int]) -> None:
    for source, weight in weights.items():
        if weight > 0 and not sizes[source]:
            raise MixingError(
                f"mix: source '{source}' has a weight but no tokens; set weights.{source}=0 or give it text"
            )
    if not any(weights.values()):
        raise MixingError(
            "mix: the encoded sources hold no tokens; give them text or lower encode.min_tokens"
        )


def _quotas(
    amounts: Mapping[str, Decimal], caps: Mapping[str, Decimal], limits: tuple[str, ...] | list[str]
) -> dict[str, Quota]:
    shares = proportions(amounts)
    return {
        source: Quota(shares[source], _whole(amount), int(caps[source]), source in limits)
        for source, amount in amounts.items()
    }


def _whole(amount: Decimal) -> int:
    """`amount` in whole tokens, half to even; at least 1 where there is any."""
    with localcontext(EXACT):
        return max(int(amount > 0), int(amount.to_integral_value(ROUND_HALF_EVEN)))
