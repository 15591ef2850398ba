"""Consume: write the ledger of the documents of a mixture that a training run has read.

The model. A run reads a mixture from its beginning, so the number of tokens that it read determines a prefix
of the plan, whose documents are counted. If the mixture continues an earlier ledger, its counts are added. A
document in which the run stopped counts as consumed, and the ledger records the rest of it.

Laws. Per source: documents and tokens of the plan = consumed + left. Documents that were taken down before
are marked, so that they are not drawn again. Memory: a block of the plan; the counts are a file.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage, Unit
from tokmill.tasks.encode.stage import artifact_digest
from tokmill.tasks.formats.encoded import Encoded, EncodedManifest, EncodedShard
from tokmill.tasks.formats.ledger import (
    CONSUMED_FILE,
    TAKEN_DOWN,
    CutDocument,
    Ledger,
    LedgerManifest,
    LedgerShard,
    LedgerSource,
)
from tokmill.tasks.formats.mixture import Mixture, Plan
from tokmill.tasks.formats.packed.takedown import ExcludedDocuments


class ConsumeParams(Params):
    """How many tokens a run has read."""

    consumed_tokens: int = Field(
        ge=0,
        lt=1 << 62,
        description=(
            "Tokens read since the very beginning of the run: steps × sequence_length × "
            "global_batch_size, less padding."
        ),
        examples=[1_000_000],
    )


def run(
    params: ConsumeParams,
    *,
    out: Path,
    mixture: Path,
    encoded: Path,
    shards: Sequence[Path],
    ledger: Path | None = None,
) -> Outcome:
    """Count the consumed documents, and write `consumed.npy` and `ledger.json`.

    Args:
        params: see `ConsumeParams`.
        out: the artifact's directory.
        mixture: the mixture that the run reads.
        encoded: the encoded artifact that was mixed.
        shards: its shards, in the manifest's order.
        ledger: the ledger that the mixture continues; None for a mixture that begins the run.

    Raises:
        MixingError: the mixture has fewer tokens, or the ledger is not the one that it continues.
        StoreError: a file is missing or broken.
    """
    opened, corpus = Mixture.open(mixture), Encoded.open(encoded)
    before = None if ledger is None else Ledger.open(ledger)
    _check_ledger(opened, before)
    counter = _ConsumedCounter(out, opened, corpus.manifest, before)
    for plan in opened.batches():
        counter.add(plan, params.consumed_tokens)
    if counter.position < params.consumed_tokens:
        raise MixingError(
            f"consume: consumed_tokens={params.consumed_tokens}, but the mixture ends at token "
            f"{counter.position} of the run; give at most that"
        )
    _take_down(counter, mixture, corpus, shards)
    made = counter.manifest(artifact_digest(mixture), params.consumed_tokens)
    made.save(out)
    metrics = {"consumed_tokens": params.consumed_tokens, "num_documents": int(counter.consumed[0].sum())}
    return Outcome(metrics=metrics, accounts=counter.accounts())


def _check_ledger(mixture: Mixture, before: Ledger | None) -> None:
    begins, ends = mixture.manifest.first_position, before.manifest.consumed_tokens if before else 0
    if begins != ends:
        raise MixingError(
            f"consume: the mixture begins at token {begins} of the run and the ledger ends at {ends}; give "
            "the ledger that the mixture was made with"
        )


class _ConsumedCounter:
    """Counts the rows of a plan up to a position.

    Attributes:
        position: end of the last counted document, in tokens of the run.
        consumed: documents and tokens consumed of each source in this mixture, int64 [2, s].
    """

    def __init__(self, out: Path, mixture: Mixture, encoded: EncodedManifest, before: Ledger | None) -> None:
        self._mixture, self._before = mixture, before
        self._sources = encoded.sources
        sizes = [[shard.num_documents for shard in source.shards] for source in encoded.sources]
        bounds = np.cumsum([0, *(size for source in sizes for size in source)])
        numbers = np.cumsum([0, *map(len, sizes)])
        self._firsts = [bounds[a:b] for a, b in pairwise(numbers)]
        self.counts = open_memmap(out / CONSUMED_FILE, "w+", np.uint16, (int(bounds[-1]),))
        self._read = mixture.manifest.first_position
        self.position = before.manifest.position if before else 0
        self.consumed = np.zeros((2, len(sizes)), dtype=np.int64)
        self._begun = np.zeros(len(sizes), dtype=np.int64)  # tokens of the documents begun in this mixture
        self._is_begun = False
        self._cut: CutDocument | None = before.manifest.cut if before else None
        if before is not None:
            self._carry_over(before)

    def _carry_over(self, before: Ledger) -> None:
        """Copy the counts of the ledger that the mixture continues."""
        for source, firsts in zip(self._sources, self._firsts, strict=True):
            known, _ = before.matched(source.source, (shard.digest for shard in source.shards))
            for shard, first in zip(known, firsts.tolist(), strict=True):
                if shard is not None:
                    self.counts[first : first + shard.num_documents] = before.consumed(shard)

    def add(self, plan: Plan, until: int) -> None:
        """Count the next rows of the plan that begin before `until`."""
        lengths = plan.num_tokens.astype(np.int64)
        ends = self._read + np.cumsum(lengths)
        number = int(np.searchsorted(ends - lengths, until))
        # The first row of a continued mixture may be the rest of a document that was already counted.
        first_start = self._mixture.manifest.first_document_start if not self._is_begun else 0
        self._is_begun, self._read = True, int(ends[-1])
        if not number:
            return
        last, left = number - 1, max(0, int(ends[number - 1]) - until)
        self._count(plan.rows(0, number), skipped=int(first_start > 0))
        self.consumed[1, plan.source[last]] -= left
        self.position = int(ends[last])
        self._cut = self._cut_at(plan, last, left, first_start if last == 0 else 0) if left > 0 else None

    def _count(self, rows: Plan, skipped: int) -> None:
        """Count rows; the first `skipped` rows are rests of documents that were already counted."""
        for source, firsts in enumerate(self._firsts):
            mine = np.flatnonzero(rows.source == source)
            new = mine[mine >= skipped]
            np.add.at(self.counts, firsts[rows.shard[new]] + rows.document[new], 1)
            self._begun[source] += int(rows.num_tokens[new].sum(dtype=np.int64))
            self.consumed[0, source] += len(mine)
            self.consumed[1, source] += int(rows.num_tokens[mine].sum(dtype=np.int64))

    def _cut_at(self, plan: Plan, row: int, left: int, first_start: int) -> CutDocument:
        """The document in this row; its last `left` tokens were not consumed."""
        source = self._sources[int(plan.source[row])]
        return CutDocument(
            source=source.source,
            digest=source.shards[int(plan.shard[row])].digest,
            document=int(plan.document[row]),
            epoch=int(plan.epoch[row]),
            start=first_start + int(plan.num_tokens[row]) - left,
            num_tokens=left,
        )

    def take_down(self, source: int, shard: int, documents: NDArray[np.int64]) -> None:
        """Mark documents of a shard as taken down."""
        self.counts[self._firsts[source][shard] + documents] = TAKEN_DOWN

    def manifest(self, mixture_digest: str, consumed_tokens: int) -> LedgerManifest:
        """The ledger's manifest: everything but the counts."""
        given = self._given()
        request = self._mixture.request()
        asked = None if request is None else request.at(self.position)
        sources = []
        for index, source in enumerate(self._sources):
            shards = [
                LedgerShard(
                    digest=shard.digest,
                    first=int(first),
                    num_documents=shard.num_documents,
                    num_consumed=int(np.count_nonzero(self.counts[first : first + shard.num_documents])),
                )
                for shard, first in zip(source.shards, self._firsts[index].tolist(), strict=True)
            ]
            sources.append(
                LedgerSource(
                    source=source.source,
                    given_tokens=int(given[index]),
                    requested_tokens=float(given[index] if asked is None else asked[index]),
                    shards=shards,
                )
            )
        return LedgerManifest(
            mixture=mixture_digest,
            consumed_tokens=consumed_tokens,
            position=self.position,
            cut=self._cut,
            sources=sources,
        )

    def _given(self) -> NDArray[np.int64]:
        """Number of tokens that each source has given in the whole run."""
        known = self._before.by_source if self._before else {}
        before = [known[s.source].given_tokens if s.source in known else 0 for s in self._sources]
        return np.array(before, dtype=np.int64) + self._begun

    def accounts(self) -> list[Account]:
        """Accounts of the tokens and documents, in all and consumed; a begun document counts."""
        accounts = []
        for index, source in enumerate(self._mixture.manifest.sources):
            documents, tokens = self.consumed[:, index].tolist()
            units: list[tuple[Unit, int, int]] = [
                ("documents", source.drawn_documents, documents),
                ("tokens", source.drawn_tokens, tokens),
            ]
            for unit, drawn, consumed in units:
                became = {"consumed": consumed, "left": drawn - consumed}
                accounts.append(Account(source=source.source, unit=unit, num_in=drawn, became=became))
        return accounts


def _take_down(counter: _ConsumedCounter, mixture: Path, encoded: Encoded, shards: Sequence[Path]) -> None:
    """Mark the documents that were excluded from the mixture when it was packed again."""
    taken = ExcludedDocuments.found(mixture)
    ordinals: dict[tuple[str, int], list[int]] = {}
    for document in taken.documents if taken else ():
        ordinals.setdefault((document.source, document.shard), []).append(document.ordinal)
    places = {source: index for index, source in enumerate(encoded.sources)}
    for source, entry, path in encoded.pair(shards):
        its = ordinals.get((source, entry.index))
        if its is not None:
            found = np.flatnonzero(np.isin(EncodedShard.open(path).ordinals, its))
            counter.take_down(places[source], entry.index, found)


CONSUME = Stage(verb="consume", task="consume", kind="ledger", version=1, params=ConsumeParams, run=run)
