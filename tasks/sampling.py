"""Divide an amount among sources: a rule gives raw weights, and caps limit the amount of each source.

With equal weights and caps of epochs × size, `water_fill` is UniMax (Chung et al. 2023, Algorithm 1). All
arithmetic is decimal with 50 digits, so results do not depend on a machine's math library.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import Params

Method: TypeAlias = Literal["proportional", "temperature", "unimax", "weights", "proportions"]
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Repetition: TypeAlias = Annotated[float, Field(ge=1, allow_inf_nan=False)]

UNLIMITED = Decimal("Infinity")
EXACT = Context(prec=50, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_QUANTUM = Decimal("1e-12")
_SUM_TOLERANCE = Decimal("1e-6")
MAX_TEMPERATURE = 1_000_000_000
"""From here on, shares are equal to the last digit."""


class SamplingParams(Params):
    """The rule by which sources are weighted; shared by `balance` and `mix`."""

    method: Method = Field(
        default="proportional",
        description=(
            "Rule for each source's share: 'proportional' (to its size), 'temperature' (p ∝ "
            "size^(1/T)), 'unimax' (equal for all, up to max_repetition), 'weights' or 'proportions' (as "
            "given below). By default it depends on which of weights, proportions and temperature is given. "
            "Settings of other methods are ignored."
        ),
    )
    temperature: float = Field(
        default=1.0,
        gt=0,
        le=MAX_TEMPERATURE,
        allow_inf_nan=False,
        description=(
            "T of p ∝ size^(1/T), for method 'temperature'. 1 keeps the natural shares, larger values lift "
            "small sources towards equal shares (2 to 5 are usual), values below 1 favour large sources."
        ),
        examples=[2.0],
    )
    weights: dict[str, Weight] = Field(
        default_factory=dict,
        description=(
            "Raw weight of each source, for method 'weights'; only their ratios matter. Every source needs "
            "one, so that none is left out by oversight; 0 leaves a source out on purpose."
        ),
        examples=[{"english": 7, "code": 3}],
    )
    proportions: dict[str, Weight] = Field(
        default_factory=dict,
        description=(
            "Share of each source, for method 'proportions': like weights, but they must sum to 1, so that a "
            "forgotten or mistyped share is noticed."
        ),
        examples=[{"english": 0.7, "code": 0.3}],
    )

    @model_validator(mode="before")
    @classmethod
    def _settle_method(cls, given: object) -> object:
        """Infer the method if it is not named, and drop the settings of others from the fingerprint."""
        if not isinstance(given, Mapping):
            return given
        if given.get("weights") and given.get("proportions") and "method" not in given:
            raise ValueError(
                "weights and proportions exclude each other; give one of them, or name the method"
            )
        if (method := _method(given)) is None:
            return given
        settled = {**given, "method": method}
        unread = SamplingParams.without_effect(settled)
        return {name: value for name, value in settled.items() if name not in unread}

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of other methods."""
        method = _method(given)
        read_by = ("weights", "proportions", "temperature")
        return {name: f"the method is '{method}'" for name in read_by if method and name != method}

    @model_validator(mode="after")
    def _check_weights(self) -> "SamplingParams":
        if self.method == "weights" and not any(self.weights.values()):
            raise ValueError(
                "method='weights' needs a positive weight for at least one source; "
                "use e.g. weights = {english = 1.0}"
            )
        if self.method == "proportions":
            check_proportions("proportions", self.proportions)
        return self

    @property
    def tables(self) -> Mapping[str, float]:
        """The weights or proportions that the method reads; empty for the other methods."""
        return {"weights": self.weights, "proportions": self.proportions}.get(self.method, {})


def _method(given: Mapping[str, Any]) -> str | None:
    """Return the method that is named, or else the one that the other settings imply."""
    implied = [name for name in ("weights", "proportions") if given.get(name)]
    implied += ["temperature"] if "temperature" in given else []
    method: str | None = given.get("method", next(iter(implied), None))
    return method


@dataclass(frozen=True)
class Filling:
    """The result of `water_fill`, in the order of the weights."""

    amounts: dict[str, Decimal]  # they add up to the total, to 50 digits
    capped: tuple[str, ...]  # sources that their cap limited


def decimal(value: float) -> Decimal:
    """The decimal number that `value` is written as: 0.1 is one tenth."""
    return Decimal(repr(float(value)))


def raw_weights(
    rule: SamplingParams, sizes: Mapping[str, int], error: type[TaskError], where: str
) -> dict[str, Decimal]:
    """The rule's raw weights, in the order of `sizes`; only given ones weight an empty source."""
    if rule.method in {"weights", "proportions"}:
        return explicit_weights(rule.method, rule.tables, sizes, error, where)
    largest = max(sizes.values(), default=0)
    with localcontext(EXACT):
        if rule.method == "unimax":
            return {source: Decimal(size > 0) for source, size in sizes.items()}
        if rule.method == "proportional" or rule.temperature == 1:
            return {source: Decimal(size) for source, size in sizes.items()}
        exponent = 1 / decimal(rule.temperature)
        return {
            source: (Decimal(size) / largest) ** exponent if size else Decimal(0)
            for source, size in sizes.items()
        }


def check_sources(
    what: str, named: Iterable[str], known: Iterable[str], error: type[TaskError], where: str
) -> None:
    """Reject names of unknown sources; the message begins with the stage, and names the nearest source."""
    sources = list(known)
    for name in named:
        if name not in sources:
            near = difflib.get_close_matches(name, sources, n=1, cutoff=0.0)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise error(
                f"{where}: {what} name an unknown source '{name}'; {hint}Sources: {', '.join(sources)}"
            )


def explicit_weights(
    what: str, weights: Mapping[str, float], sizes: Iterable[str], error: type[TaskError], where: str
) -> dict[str, Decimal]:
    """The user's weights as decimals, in the order of `sizes`; each source must have one."""
    sources = list(sizes)
    check_sources(what, weights, sources, error, where)
    missing = [source for source in sources if source not in weights]
    if missing:
        raise error(
            f"{where}: {what} lack the source '{missing[0]}'; give each source one, 0 leaves it out. "
            f"Without: {', '.join(missing)}"
        )
    return {source: decimal(weights[source]) for source in sources}


def check_proportions(what: str, given: Mapping[str, float]) -> None:
    """Reject proportions that do not sum to 1, to six decimals, with the nearest that do."""
    total = sum(map(decimal, given.values()), Decimal(0))
    if abs(total - 1) <= _SUM_TOLERANCE:
        return
    nearest = proportions({source: decimal(share) for source, share in given.items()})
    shown = ", ".join(f"{source} = {rounded(share, 6):f}" for source, share in nearest.items())
    fix = f"use {{{shown}}}, or use weights, which need not sum to 1" if total else "give at least one"
    raise ValueError(f"{what} sum to {rounded(total, 9):f} and must sum to 1; {fix}")


def water_fill(
    weights: Mapping[str, Decimal],
    caps: Mapping[str, Decimal],
    total: Decimal,
    floors: Mapping[str, Decimal] | None = None,
) -> Filling:
    """Divide `total` in proportion to `weights`, with no source above its cap or below its floor.

    What a cap cuts off is divided among the others by the same rule; what is above all caps is not given out.
    """
    floors = floors or {}
    amounts = dict.fromkeys(weights, Decimal(0))
    active = {source: weight for source, weight in weights.items() if weight > 0}
    capped: set[str] = set()
    with localcontext(EXACT):
        remaining = total
        while active:
            level = remaining / sum(active.values())
            asked = {source: weight * level for source, weight in active.items()}
            over = {
                source: amount - caps[source] for source, amount in asked.items() if amount > caps[source]
            }
            under = {source: floors.get(source, Decimal(0)) - amount for source, amount in asked.items()}
            under = {source: lack for source, lack in under.items() if lack > 0}
            if not over and not under:
                amounts |= asked
                break
            # Fix only the side with the larger sum; the amount that it frees or takes may satisfy the other
            # side.
            settled = over if sum(over.values()) >= sum(under.values()) else under
            capped |= settled.keys() if settled is over else set()
            for source in settled:
                amounts[source] = caps[source] if settled is over else floors.get(source, Decimal(0))
                remaining -= amounts[source]
                del active[source]
    return Filling(amounts, tuple(source for source in weights if source in capped))


def capacity(weights: Mapping[str, Decimal], caps: Mapping[str, Decimal]) -> Decimal:
    """The largest total that `water_fill` can divide: the sum of the caps of sources with a weight."""
    with localcontext(EXACT):
        return sum((caps[source] for source, weight in weights.items() if weight > 0), Decimal(0))


def proportions(amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Each amount's share of the sum, to 12 decimals; the shares add up to exactly 1.

    The rounding error goes to the largest share (the first of equal ones). If the sum is 0, so are all
    shares.
    """
    with localcontext(EXACT):
        total = sum(amounts.values(), Decimal(0))
        if not total:
            return {source: Decimal(0) for source in amounts}
        shares = {source: (amount / total).quantize(_QUANTUM) for source, amount in amounts.items()}
        largest = max(shares, key=lambda source: shares[source])
        shares[largest] += 1 - sum(shares.values())
        return shares


def rounded(value: Decimal, digits: int = 12) -> Decimal:
    """`value` to `digits` significant digits, half to even, without trailing zeros."""
    return Context(prec=digits, rounding=ROUND_HALF_EVEN).plus(value).normalize()
