"""Mix: which documents of which source, in which order, planned on lengths only.

The model. A rule gives every source a share of the mixture's tokens (`tasks.mixing.quotas`). Each source
gives whole documents in a seeded order, a new one each epoch, until its tokens are nearest to its quota
(`tasks.mixing.draw`). The documents are woven so that every source keeps its share all along the way
(`tasks.kernels.interleave`).

Laws. Per source the tokens drawn are within one document of the quota, and never above `max_repetition` times
what it has. Nothing is repeated before everything of that source has been drawn once. The same parameters and
lengths give the same plan, whatever the machine. What is not drawn is in the accounts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tasks.errors import MixingError
from tasks.formats.encoded import Encoded, EncodedShard
from tasks.formats.mixture import MixedSource, MixtureManifest, Plan
from tasks.mixing.draw import Draw, Weave, draw, weave
from tasks.mixing.quotas import Quota, Request
from tasks.sampling import Repetition, SamplingParams, proportions, rounded
from tasks.stage import Account, Outcome, Scalar, Stage, Unit

_MOST_SOURCES = (1 << 16) - 1
_U32 = 1 << 32


class MixParams(SamplingParams):
    """The shares of the sources in the training data, counted in tokens."""

    max_repetition: Repetition | dict[str, Repetition] = Field(
        default=1.0,
        description=(
            "The most times that a source may be drawn, at least 1: one number for all, or a table by "
            "source (1 for those that it does not name). 1 draws no document twice; up to about 4 is "
            "usual. With 'unimax' this is the number of epochs that lets small sources grow."
        ),
        examples=[4.0],
    )
    total_tokens: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Tokens of the mixture. Empty: as many as the shares allow under max_repetition, so that the "
            "first source to run out sets the size; with 'unimax', as many as the sources have."
        ),
        examples=[1_000_000_000],
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Decides the order of the documents within each source. Any whole number from 0.",
    )


@dataclass(frozen=True)
class SourceLengths:
    """The document lengths of one source.

    Attributes:
        lengths: int64 [d], tokens, shard after shard.
        shard_offsets: int64 [shards + 1]; where each shard's documents begin among the lengths.
    """

    lengths: NDArray[np.int64]
    shard_offsets: NDArray[np.int64]

    @classmethod
    def of_shards(cls, shards: Sequence[NDArray[np.int64]]) -> "SourceLengths":
        """Join the lengths of a source's shards, in order."""
        offsets = np.cumsum([0, *map(len, shards)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, dtype=np.int64), *shards]), offsets)

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.lengths.sum())


@dataclass(frozen=True)
class Mixed:
    """A planned mixture: the plan, its manifest, and the accounts per source."""

    plan: Plan
    manifest: MixtureManifest
    accounts: list[Account]


def mixed(params: MixParams, sources: Mapping[str, SourceLengths]) -> Mixed:
    """Plan a mixture of sources whose documents have these lengths.

    Raises:
        MixingError: an unknown source, a source without tokens, or more tokens than the limits allow.
    """
    _check_sizes(sources)
    sizes = {source: found.num_tokens for source, found in sources.items()}
    repetitions = _repetitions(params.max_repetition, sizes)
    quotas = Request(params, sizes, repetitions, params.total_tokens).quotas()
    draws = {
        source: draw(
            found.lengths, quotas[source].num_tokens, quotas[source].most_tokens, source, params.seed
        )
        for source, found in sources.items()
    }
    plan = _plan(weave(list(draws.values())), list(sources.values()))
    accounts = [
        _account(source, found.lengths, draws[source], unit)
        for source, found in sources.items()
        for unit in ("documents", "tokens")
    ]
    return Mixed(plan, _manifest(params, sources, quotas, draws, repetitions), accounts)


def _repetitions(limit: float | Mapping[str, float], sources: Mapping[str, int]) -> dict[str, float]:
    if isinstance(limit, Mapping):
        return dict.fromkeys(sources, 1.0) | dict(limit)
    return dict.fromkeys(sources, limit)


def _check_sizes(sources: Mapping[str, SourceLengths]) -> None:
    if len(sources) > _MOST_SOURCES:
        raise MixingError(f"mix: {len(sources)} sources must be at most {_MOST_SOURCES}; join some of them")
    for source, found in sources.items():
        longest = int(np.max(found.lengths, initial=0))
        if longest >= _U32:
            raise MixingError(
                f"mix: source '{source}' has a document of {longest} tokens; it must have fewer than "
                f"{_U32}, so split it"
            )


def _plan(woven: Weave, sources: Sequence[SourceLengths]) -> Plan:
    """The rows of the plan: each document by its shard and its position there."""
    shards = np.empty(len(woven.sources), dtype=np.uint32)
    documents = np.empty(len(woven.sources), dtype=np.uint32)
    for index, found in enumerate(sources):
        rows = np.flatnonzero(woven.sources == index)
        of_source = woven.documents[rows]
        shard = np.searchsorted(found.shard_offsets, of_source, side="right") - 1
        shards[rows] = shard
        documents[rows] = of_source - found.shard_offsets[shard]
    return Plan(woven.sources, shards, documents, woven.epochs, woven.lengths.astype(np.uint32))


def _account(source: str, lengths: NDArray[np.int64], given: Draw, unit: Unit) -> Account:
    """In + repeated = kept + repeated + left out; a document without tokens can never be drawn."""

    def of(documents: NDArray[np.int64]) -> int:
        return len(documents) if unit == "documents" else int(documents.sum())

    first = given.epochs == 0
    kept, again = of(given.lengths[first]), of(given.lengths[~first])
    num_in, empty = of(lengths), of(lengths[lengths == 0])
    became = {
        "kept": kept,
        "repeated": again,
        "dropped:empty": empty,
        "dropped:not_drawn": num_in - empty - kept,
    }
    return Account(source=source, unit=unit, num_in=num_in, added={"repetition": again}, became=became)


def _manifest(
    params: MixParams,
    sources: Mapping[str, SourceLengths],
    quotas: Mapping[str, Quota],
    draws: Mapping[str, Draw],
    repetitions: Mapping[str, float],
) -> MixtureManifest:
    drawn = {source: given.num_tokens for source, given in draws.items()}
    shares = proportions({source: Decimal(tokens) for source, tokens in drawn.items()})
    return MixtureManifest(
        method=params.method,
        temperature=params.temperature if params.method == "temperature" else None,
        seed=params.seed,
        num_documents=sum(len(given.documents) for given in draws.values()),
        num_tokens=sum(drawn.values()),
        sources=[
            _mixed_source(
                source, found, quotas[source], draws[source], float(shares[source]), repetitions[source]
            )
            for source, found in sources.items()
        ],
    )


def _mixed_source(
    source: str, found: SourceLengths, quota: Quota, given: Draw, share: float, max_repetition: float
) -> MixedSource:
    first = given.epochs == 0
    epochs = Decimal(given.num_tokens) / max(1, found.num_tokens)
    return MixedSource(
        source=source,
        num_documents=len(found.lengths),
        num_tokens=found.num_tokens,
        requested_share=float(quota.share),
        quota_tokens=quota.num_tokens,
        share=share,
        drawn_documents=len(given.documents),
        drawn_tokens=given.num_tokens,
        unique_documents=int(first.sum()),
        unique_tokens=int(given.lengths[first].sum()),
        epochs=float(rounded(epochs)),
        max_repetition=max_repetition,
        limits=quota.limits,
    )


def source_lengths(encoded: Encoded, shards: Sequence[Path]) -> dict[str, SourceLengths]:
    """Read the document lengths of an encoded corpus; no token is read.

    Args:
        encoded: the manifest.
        shards: the shards' directories, in the manifest's order.
    """
    lengths: dict[str, list[NDArray[np.int64]]] = {source: [] for source in encoded.sources}
    for source, _, path in encoded.pair(shards):
        lengths[source].append(np.diff(EncodedShard.open(path).offsets))
    return {source: SourceLengths.of_shards(parts) for source, parts in lengths.items()}


def run(params: MixParams, *, out: Path, encoded: Path, shards: Sequence[Path]) -> Outcome:
    """Plan the mixture of an encoded corpus; writes `plan.parquet` and `mixture.json`."""
    made = mixed(params, source_lengths(Encoded.open(encoded), shards))
    made.plan.save(out)
    made.manifest.save(out)
    return Outcome(metrics=_metrics(made.manifest), accounts=made.accounts)


def _metrics(manifest: MixtureManifest) -> dict[str, Scalar]:
    metrics: dict[str, Scalar] = {
        "method": manifest.method,
        "num_documents": manifest.num_documents,
        "num_tokens": manifest.num_tokens,
        "limited_by": ", ".join(entry.source for entry in manifest.sources if entry.limits),
    }
    return metrics | {f"share.{entry.source}": entry.share for entry in manifest.sources}


MIX = Stage(verb="mix", task="mix", kind="mixture", version=1, params=MixParams, run=run)
