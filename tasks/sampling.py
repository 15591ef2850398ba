"""How much of each source: a rule gives raw weights, caps bound them, what a cap takes off is handed on.

The model. Sources have sizes n (bytes, documents or tokens). A rule turns sizes into raw weights w:

    proportional   w = n
    temperature    w = n^(1/T)            T = 1 keeps the natural shares, T → ∞ gives every source the same
    unimax         w = 1                  uniform, up to the cap
    weights        w as the user says     every source must be named; 0 leaves one out

`water_fill` shares a total out in proportion to w while no source gets more than its cap. What a cap takes
off is shared out among the uncapped by the same rule, until no cap is exceeded. With w = 1 and caps of
(epochs × n) this is UniMax, which visits sources by ascending size and gives each the smaller of its cap and
an equal part of what is left (Chung et al. 2023, "UniMax: Fairer and more Effective Language Sampling for
Large-Scale Multilingual Pretraining", Algorithm 1).

All arithmetic is decimal with 50 digits, so no result depends on a machine's math library.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from tasks.errors import TaskError
from tasks.stage import Params

Method: TypeAlias = Literal["proportional", "temperature", "unimax", "weights"]
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Repetition: TypeAlias = Annotated[float, Field(ge=1, allow_inf_nan=False)]

UNLIMITED = Decimal("Infinity")
EXACT = Context(prec=50, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_QUANTUM = Decimal("1e-12")


class SamplingParams(Params):
    """The rule by which sources are weighted; shared by `balance` and `mix`."""

    method: Method = Field(
        default="proportional",
        description=(
            "Rule for each source's share: 'proportional' (as large as it is), 'temperature' (p ∝ "
            "size^(1/T)), 'unimax' (the same for all, up to max_repetition) or 'weights' (as given below). "
            "Left out, it follows from whether weights or a temperature is given. What belongs to another "
            "method is not read."
        ),
    )
    temperature: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description=(
            "T of p ∝ size^(1/T), for method 'temperature'. 1 keeps the natural shares, larger values lift "
            "small sources towards an equal share (2 to 5 are usual), values below 1 favour large sources."
        ),
        examples=[2.0],
    )
    weights: dict[str, Weight] = Field(
        default_factory=dict,
        description=(
            "Raw weight of each source, for method 'weights'; only their ratios matter. Every source needs "
            "one, so that none is left out by oversight; 0 leaves a source out on purpose."
        ),
        examples=[{"english": 0.7, "code": 0.3}],
    )

    @model_validator(mode="before")
    @classmethod
    def _settle_method(cls, given: object) -> object:
        """Let the method follow from what was given where it is not named, and drop what it does not read.

        So a profile's method can be exchanged without clearing the fields of the other one, and what has no
        influence bears no identity.
        """
        if not isinstance(given, Mapping):
            return given
        inferred = "weights" if given.get("weights") else "temperature" if "temperature" in given else None
        method = given.get("method", inferred)
        if method is None:
            return given
        unread = {name for name in ("weights", "temperature") if name != method}
        return {name: value for name, value in given.items() if name not in unread} | {"method": method}

    @model_validator(mode="after")
    def _check_weights(self) -> "SamplingParams":
        if self.method == "weights" and not any(self.weights.values()):
            raise ValueError(
                "method='weights' needs a positive weight for at least one source; "
                "use e.g. weights = {english = 1.0}"
            )
        return self


@dataclass(frozen=True)
class Filling:
    """What `water_fill` gives.

    Attributes:
        amounts: by source, in the order of the weights; they add up to the total, to 50 digits.
        capped: sources that would have got more, had their cap allowed it; in the order of the weights.
    """

    amounts: dict[str, Decimal]
    capped: tuple[str, ...]


def decimal(value: float) -> Decimal:
    """The decimal number that `value` is written as: 0.1 is one tenth."""
    return Decimal(repr(float(value)))


def raw_weights(
    rule: SamplingParams, sizes: Mapping[str, int], error: type[TaskError], where: str
) -> dict[str, Decimal]:
    """The rule's weights, unnormalized, in the order of `sizes`.

    Args:
        rule: the method with its temperature or weights.
        sizes: size of each source, ≥ 0, all in one unit. An empty source gets weight 0 from every rule but
            'weights'.
        error: what to raise.
        where: the stage's word, the start of every message.

    Raises:
        TaskError: as `error`; a weight is missing, is for an unknown source, or is negative, NaN or infinite.
    """
    if rule.method == "weights":
        check_sources("weights", rule.weights, sizes, error, where)
        return _explicit(rule.weights, sizes, error, where)
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
    """Refuse a name that is no source's.

    Raises:
        TaskError: as `error`; the message names the nearest source.
    """
    sources = list(known)
    for name in named:
        if name not in sources:
            near = difflib.get_close_matches(name, sources, n=1, cutoff=0.0)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise error(
                f"{where}: {what} name an unknown source '{name}'; {hint}Sources: {', '.join(sources)}"
            )


def _explicit(
    weights: Mapping[str, float], sizes: Mapping[str, int], error: type[TaskError], where: str
) -> dict[str, Decimal]:
    missing = [source for source in sizes if source not in weights]
    if missing:
        raise error(
            f"{where}: weights lack the source '{missing[0]}'; give each source a weight, 0 leaves it out. "
            f"Without a weight: {', '.join(missing)}"
        )
    for source, weight in weights.items():
        if not math.isfinite(weight) or weight < 0:
            raise error(
                f"{where}: weights.{source}={weight} must be a finite number of at least 0; use e.g. 1.0"
            )
    return {source: decimal(weights[source]) for source in sizes}


def water_fill(weights: Mapping[str, Decimal], caps: Mapping[str, Decimal], total: Decimal) -> Filling:
    """Share `total` out in proportion to `weights`, no source above its cap.

    Args:
        weights: each ≥ 0; a source of weight 0 gets nothing.
        caps: of the same sources; each ≥ 0 or `UNLIMITED`.
        total: at most `capacity(weights, caps)`; more than that is not handed out.
    """
    amounts = dict.fromkeys(weights, Decimal(0))
    active = {source: weight for source, weight in weights.items() if weight > 0}
    with localcontext(EXACT):
        remaining = total
        while active:
            level = remaining / sum(active.values())
            full = [source for source, weight in active.items() if weight * level > caps[source]]
            if not full:
                amounts |= {source: weight * level for source, weight in active.items()}
                break
            for source in full:
                amounts[source] = caps[source]
                remaining -= caps[source]
                del active[source]
    capped = [source for source in weights if weights[source] > 0 and source not in active]
    return Filling(amounts, tuple(capped))


def capacity(weights: Mapping[str, Decimal], caps: Mapping[str, Decimal]) -> Decimal:
    """The largest total that `water_fill` can hand out: the caps of the sources with a weight, added up."""
    with localcontext(EXACT):
        return sum((caps[source] for source, weight in weights.items() if weight > 0), Decimal(0))


def proportions(amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Shares of the sum, to 12 decimals; they add up to 1 exactly.

    The largest, of equally large ones the first, takes what rounding leaves over. All are 0 where the sum is
    0.
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
