"""Balance: the weight of each source's text when a tokenizer is trained.

The counts of a source's pre-tokens are multiplied by a factor. They are whole numbers, so all factors are
multiplied by one `resolution` first, with which rounding changes no count by more than one part in 2,000.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import BalanceError
from tokmill.tasks.core.stage import Outcome, Scalar, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Balance, BalancedSource
from tokmill.tasks.sampling import (
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

_U64 = 1 << 64
_I63 = (1 << 63) - 1
_FINE = 1000  # smallest factor × resolution, if the counts fit: rounding changes a count by at most a half
_ROOM_BYTES = 1 << 58  # weighted bytes; training can count 2^62, and a normalizer may add some
_REPEATED = 10  # warn of sources that count more often than this
_FADED = 1000  # warn of sources whose factor is below one part in this many


class BalanceParams(SamplingParams):
    """The weight of each source in the tokenizer's training."""

    unit: Literal["bytes", "documents"] = Field(
        default="bytes",
        description="Unit of a source's size: bytes of text, or documents.",
    )
    max_repetition: Repetition | None = Field(
        default=10.0,
        description=(
            "The most times that a source's text may count, at least 1; empty for no limit. What this limit "
            "cuts off is given to the other sources by the same rule. With 'unimax' this is the number of "
            "epochs. Text that counts a hundred times turns its rare words into tokens."
        ),
        examples=[4.0],
    )
    total: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Size of the balanced corpus in `unit`. Empty: the size of the corpus, or less if the limits "
            "require it. It only affects what a `train.min_frequency` of 2 or more means."
        ),
    )


@dataclass(frozen=True)
class SourceSize:
    """Size of a source: documents, and bytes of text."""

    num_documents: int
    num_bytes: int


def balanced(params: BalanceParams, sizes: Mapping[str, SourceSize]) -> Balance:
    """Balance sources of these sizes."""
    unit = params.unit
    natural: dict[str, int] = {source: getattr(size, f"num_{unit}") for source, size in sizes.items()}
    weights = raw_weights(params, natural, BalanceError, "balance")
    empty = [source for source, weight in weights.items() if weight > 0 and not natural[source]]
    if empty:
        raise BalanceError(
            f"balance: source '{empty[0]}' has a weight but 0 {unit} of text; set weights.{empty[0]}=0 or "
            "give it text"
        )
    if not any(weights.values()):
        raise BalanceError(f"balance: the corpus has 0 {unit} of text; give its sources text")
    total, filling = _fill(params, weights, natural)
    with localcontext(EXACT):
        factors = {
            s: rounded(filling.amounts[s] / size) if size else Decimal(0) for s, size in natural.items()
        }
    natural_shares = proportions({source: Decimal(size) for source, size in natural.items()})
    shares, asked = proportions(filling.amounts), proportions(weights)
    entries = [
        BalancedSource(
            source=source,
            num_documents=size.num_documents,
            num_bytes=size.num_bytes,
            natural_share=float(natural_shares[source]),
            asked_share=float(asked[source]),
            share=float(shares[source]),
            factor=float(factors[source]),
            capped=source in filling.capped,
        )
        for source, size in sizes.items()
    ]
    return Balance(
        method=params.method,
        temperature=params.temperature if params.method == "temperature" else None,
        unit=unit,
        max_repetition=params.max_repetition,
        total=total,
        resolution=_resolution(factors, sizes),
        warnings=list(_warnings(params, entries)),
        sources=entries,
    )


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


def _resolution(factors: Mapping[str, Decimal], sizes: Mapping[str, SourceSize]) -> int:
    """The power of ten that multiplies all factors, so that rounding to whole counts changes little."""
    used = {source: factor for source, factor in factors.items() if factor}
    if all(factor == factor.to_integral_value() for factor in used.values()):
        return 1
    least = min(used.values())
    resolution = 1
    with localcontext(EXACT):
        weighted = sum((factor * sizes[source].num_bytes for source, factor in used.items()), Decimal(0))
        while least * resolution < _FINE and weighted * resolution * 10 <= _ROOM_BYTES:
            resolution *= 10
        if least * resolution < 1:
            raise BalanceError(
                f"balance: factors from {least} to {max(used.values())} of {int(weighted)} bytes need counts "
                "of more than 64 bits; use weights that differ less, or a smaller max_repetition"
            )
    return resolution


def _warnings(params: BalanceParams, entries: list[BalancedSource]) -> Iterator[str]:
    for entry in entries:
        if entry.capped and params.tables:
            yield (
                f"source '{entry.source}' has a share of {entry.share:.2%}, and {entry.asked_share:.2%} was "
                f"asked for: max_repetition={params.max_repetition:g} holds it back"
            )
        if entry.factor > _REPEATED:
            yield (
                f"source '{entry.source}' counts {entry.factor:.4g} times, so that its rare words become "
                "tokens; lower its weight, the temperature or max_repetition, or give it text"
            )
        if 0 < entry.factor * _FADED < 1:
            yield f"source '{entry.source}' counts {entry.factor:.2g} times: little of it is learned"


def scales_of(balance: Balance, sources: Iterable[str]) -> dict[str, Decimal]:
    """Return each source's factor, multiplied by the balance's resolution."""
    factors, names = balance.factors, list(sources)
    unknown = [source for source in names if source not in factors]
    if unknown:
        raise BalanceError(
            f"balance: no factor for source '{unknown[0]}'; balance the corpus that was counted. Sources: "
            f"{', '.join(factors)}"
        )
    with localcontext(EXACT):
        return {source: factors[source] * balance.resolution for source in names}


def scaled_counts(counts: NDArray[np.uint64], factor: Decimal) -> NDArray[np.uint64]:
    """Count × factor, exactly, then rounded half to even."""
    if not factor.is_finite() or factor < 0:
        raise BalanceError(f"balance: factor {factor} must be a number of at least 0; balance again")
    p, q = factor.as_integer_ratio()
    scaled = np.zeros_like(counts)
    if p == 0:
        return scaled
    if q <= _I63:
        small = counts <= np.uint64((_I63 - q // 2) // p)
        whole, rest = np.divmod(counts[small] * np.uint64(p), np.uint64(q))
        twice = rest * np.uint64(2)  # below 2^64, since q ≤ 2^63
        up = (twice > q) | ((twice == q) & (whole % np.uint64(2) == 1))
        scaled[small] = whole + up.astype(np.uint64)
    else:
        small = counts <= np.uint64(min(q // 2 // p, _U64 - 1))  # at most one half: rounds to 0
    # Few counts are large: pre-tokens follow Zipf's law, so Python's whole numbers do for the rest.
    rest_of_them = [round(Fraction(int(count) * p, q)) for count in counts[~small]]
    if (largest := max(rest_of_them, default=0)) >= _U64:
        raise BalanceError(
            f"balance: a count × factor {factor} is {largest}, which exceeds 64 bits; use a smaller total or "
            "max_repetition"
        )
    scaled[~small] = rest_of_them
    return scaled


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
    lines += ["", *(f"**{warning}**" for warning in balance.warnings)] if balance.warnings else []
    return "\n".join(lines) + "\n"


def run(params: BalanceParams, *, out: Path, corpus: Path) -> Outcome:
    """Balance the sources of the corpus in the directory `corpus`; writes `balance.json` and `summary.md`."""
    opened = Corpus.open(corpus)
    statistics = {source: opened.source_stats(source) for source in opened.sources}
    sizes = {name: SourceSize(its.num_documents, its.num_bytes) for name, its in statistics.items()}
    balance = balanced(params, sizes)
    balance.save(out)
    (out / "summary.md").write_text(summary(balance), encoding="utf-8")
    metrics: dict[str, Scalar] = {
        "method": balance.method,
        "total": balance.total,
        "unit": balance.unit,
        "num_sources": len(balance.sources),
        "num_capped": sum(entry.capped for entry in balance.sources),
        "resolution": balance.resolution,
    }
    metrics |= {"warnings": "; ".join(balance.warnings)} if balance.warnings else {}
    return Outcome(metrics=metrics | {f"share.{entry.source}": entry.share for entry in balance.sources})


BALANCE = Stage(verb="balance", task="balance", kind="balance", version=2, params=BalanceParams, run=run)
