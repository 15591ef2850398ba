"""Balance: how much each source's text counts when a tokenizer is trained.

The model. A source of size n (bytes or documents) gets an amount a by a rule (see `tasks.sampling`), at most
`max_repetition` × n; its factor is a / n. The counts of its pre-tokens, made once, are multiplied by that
factor: no text is read again when a weight changes.

Laws. Proportional balance without a cap has factor 1 everywhere. The amounts add up to `total`. A counted
pre-token never counts 0 unless its source is left out: rare tokens of a source that is scaled down count at
least once, so factors far below 1 lift its tail; a larger `total` scales every factor up and makes that
effect small.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tasks.errors import BalanceError
from tasks.formats.balance import Balance, BalancedSource
from tasks.formats.corpus import Corpus
from tasks.sampling import (
    EXACT,
    UNLIMITED,
    Filling,
    Repetition,
    SamplingParams,
    capacity,
    decimal,
    proportions,
    raw_weights,
    rounded,
    water_fill,
)
from tasks.stage import Outcome, Scalar, Stage

_U64 = 1 << 64
_I63 = (1 << 63) - 1


class BalanceParams(SamplingParams):
    """How much each source counts in the tokenizer's training."""

    unit: Literal["bytes", "documents"] = Field(
        default="bytes",
        description="What the size of a source is counted in: bytes of text, or documents.",
    )
    max_repetition: Repetition | None = Field(
        default=None,
        description=(
            "The most times that a source's text may count, at least 1; empty for no limit. What the limit "
            "takes off goes to the other sources by the same rule. With 'unimax' this is the number of "
            "epochs."
        ),
        examples=[4.0],
    )
    total: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Size of the balanced corpus in `unit`. Empty: as large as the corpus is, or as the limits "
            "allow. Only the scale of the counts follows from it, and with it what `train.min_frequency` "
            "means."
        ),
    )


@dataclass(frozen=True)
class SourceSize:
    """What a source has: documents, and bytes of text."""

    num_documents: int
    num_bytes: int


def balanced(params: BalanceParams, sizes: Mapping[str, SourceSize]) -> Balance:
    """Balance sources of these sizes.

    Raises:
        BalanceError: a weight is missing or unknown, every source is empty, or `total` exceeds what the caps
            allow.
    """
    natural = {
        source: size.num_bytes if params.unit == "bytes" else size.num_documents
        for source, size in sizes.items()
    }
    weights = raw_weights(params, natural, BalanceError, "balance")
    _check_not_empty(weights, natural, params.unit)
    total, filling = _fill(params, weights, natural)
    factors = {source: _factor(filling.amounts[source], natural[source]) for source in natural}
    natural_shares = proportions({source: Decimal(size) for source, size in natural.items()})
    shares = proportions(filling.amounts)
    entries = [
        BalancedSource(
            source=source,
            num_documents=size.num_documents,
            num_bytes=size.num_bytes,
            natural_share=float(natural_shares[source]),
            share=float(shares[source]),
            factor=float(factors[source]),
            capped=source in filling.capped,
        )
        for source, size in sizes.items()
    ]
    return Balance(
        method=params.method,
        temperature=params.temperature if params.method == "temperature" else None,
        unit=params.unit,
        max_repetition=params.max_repetition,
        total=total,
        sources=entries,
    )


def _check_not_empty(weights: Mapping[str, Decimal], natural: Mapping[str, int], unit: str) -> None:
    empty = [source for source, weight in weights.items() if weight > 0 and not natural[source]]
    if empty:
        raise BalanceError(
            f"balance: source '{empty[0]}' has a weight but 0 {unit} of text; set weights.{empty[0]}=0 or "
            "give it text"
        )
    if not any(weights.values()):
        raise BalanceError(f"balance: the corpus has 0 {unit} of text; give its sources text")


def _fill(
    params: BalanceParams, weights: Mapping[str, Decimal], natural: Mapping[str, int]
) -> tuple[int, Filling]:
    with localcontext(EXACT):
        limit = UNLIMITED if params.max_repetition is None else decimal(params.max_repetition)
        caps = {source: limit * size if size else Decimal(0) for source, size in natural.items()}
    most = capacity(weights, caps)
    if params.total is not None and params.total > most:
        raise BalanceError(
            f"balance: total={params.total} {params.unit} is more than "
            f"max_repetition={params.max_repetition} allows; use at most {int(most)}, or a larger "
            "max_repetition"
        )
    total = params.total if params.total is not None else int(min(Decimal(sum(natural.values())), most))
    return total, water_fill(weights, caps, Decimal(total))


def _factor(amount: Decimal, size: int) -> Decimal:
    with localcontext(EXACT):
        return rounded(amount / size) if size else Decimal(0)


def weighted_counts(
    balance: Balance, counts: Mapping[str, NDArray[np.uint64]]
) -> dict[str, NDArray[np.uint64]]:
    """Multiply each source's counts by its factor.

    Args:
        balance: has every source of `counts`.
        counts: by source, any shape.

    Returns:
        Arrays of the same shapes; see `scaled_counts` for the rounding.

    Raises:
        BalanceError: a source is not in the balance, or a product exceeds 64 bits.
    """
    factors = balance.factors
    unknown = [source for source in counts if source not in factors]
    if unknown:
        raise BalanceError(
            f"balance: no factor for source '{unknown[0]}'; balance the corpus that was counted. Sources: "
            f"{', '.join(factors)}"
        )
    return {source: scaled_counts(array, factors[source]) for source, array in counts.items()}


def scaled_counts(counts: NDArray[np.uint64], factor: Decimal) -> NDArray[np.uint64]:
    """Count × factor, exactly, then rounded half to even; at least 1 where count and factor are positive.

    Exact means: `factor` is the decimal number p / q with whole p and q = 10^k, and count × p is divided by q
    with its remainder, without floating point.

    Raises:
        BalanceError: a product exceeds 64 bits.
    """
    p, q = _fraction(factor)
    if p == 0:
        return np.zeros_like(counts)
    scaled = np.zeros_like(counts)
    if q <= _I63:
        small = counts <= np.uint64((_I63 - q // 2) // p)
        scaled[small] = _divided(counts[small] * np.uint64(p), np.uint64(q))
    else:
        small = counts <= np.uint64(min(q // 2 // p, _U64 - 1))  # at most one half: rounds to 0
    # Few counts are large: pre-tokens follow Zipf's law, so Python's whole numbers do for the rest.
    scaled[~small] = [_checked(int(count), p, q) for count in counts[~small]]
    return np.where((scaled == 0) & (counts > 0), np.uint64(1), scaled)


def _fraction(factor: Decimal) -> tuple[int, int]:
    """`factor` as whole numbers p / 10^k, not reduced further: the divisor stays a power of ten."""
    sign, digits, exponent = factor.normalize().as_tuple()
    if sign or not isinstance(exponent, int):
        raise BalanceError(f"balance: factor {factor} must be a number of at least 0; balance again")
    p = int("".join(map(str, digits)))
    return (p * 10**exponent, 1) if exponent >= 0 else (p, 10**-exponent)


def _divided(products: NDArray[np.uint64], q: np.uint64) -> NDArray[np.uint64]:
    """Products / q, half to even; twice a remainder stays below 2^64, since q ≤ 2^63."""
    whole, rest = np.divmod(products, q)
    twice = rest * np.uint64(2)
    up = (twice > q) | ((twice == q) & (whole % np.uint64(2) == 1))
    rounded_up: NDArray[np.uint64] = whole + up.astype(np.uint64)
    return rounded_up


def _checked(count: int, p: int, q: int) -> int:
    whole, rest = divmod(count * p, q)
    whole += 2 * rest > q or (2 * rest == q and whole % 2 == 1)
    if whole >= _U64:
        raise BalanceError(
            f"balance: count {count} × factor {p}/{q} exceeds 64 bits; use a smaller total or max_repetition"
        )
    return whole


def summary(balance: Balance) -> str:
    """The balance as a Markdown table: natural against balanced share, and which caps bound."""
    lines = [
        f"Method {balance.method}, by {balance.unit}, {balance.total:,} {balance.unit} in all.",
        "",
        "| source | documents | bytes | natural share | balanced share | counts × | cap |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {entry.source} | {entry.num_documents:,} | {entry.num_bytes:,} | {entry.natural_share:.2%} | "
        f"{entry.share:.2%} | {entry.factor:.6g} | {'bound' if entry.capped else '–'} |"
        for entry in balance.sources
    ]
    return "\n".join(lines) + "\n"


def run(params: BalanceParams, *, out: Path, corpus: Path) -> Outcome:
    """Balance the sources of the corpus in the directory `corpus`; writes `balance.json` and `summary.md`."""
    opened = Corpus.open(corpus)
    statistics = {source: opened.source_stats(source) for source in opened.sources}
    sizes = {source: SourceSize(found.num_documents, found.num_bytes) for source, found in statistics.items()}
    balance = balanced(params, sizes)
    balance.save(out)
    (out / "summary.md").write_text(summary(balance), encoding="utf-8")
    return Outcome(metrics=_metrics(balance))


def _metrics(balance: Balance) -> dict[str, Scalar]:
    metrics: dict[str, Scalar] = {
        "method": balance.method,
        "total": balance.total,
        "unit": balance.unit,
        "num_sources": len(balance.sources),
        "num_capped": sum(entry.capped for entry in balance.sources),
    }
    return metrics | {f"share.{entry.source}": entry.share for entry in balance.sources}


BALANCE = Stage(verb="balance", task="balance", kind="balance", version=1, params=BalanceParams, run=run)
