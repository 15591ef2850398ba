"""Consume: write the ledger of the documents of a mixture that a training run has read.

A document of which a piece was read counts as consumed; the ledger records the rest of it, in parts. Per
source: documents and tokens of the plan = consumed + left, over all mixtures of the run.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage, Unit
from tokmill.tasks.encode.stage import artifact_digest
from tokmill.tasks.fim.rearrangement import FIM_TOKENS
from tokmill.tasks.formats.encoded import Encoded, EncodedManifest, EncodedShard
from tokmill.tasks.formats.mixture import (
    CONSUMED_FILE,
    TAKEN_DOWN,
    CutDocument,
    Ledger,
    LedgerManifest,
    LedgerShard,
    LedgerSource,
    Mixture,
)
from tokmill.tasks.formats.packed.manifest import ExcludedDocuments, TakedownManifest
from tokmill.tasks.formats.packed.reader import PackedReader


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
    packed: Path,
    encoded: Path,
    shards: Sequence[Path],
    ledger: Path | None = None,
) -> Outcome:
    """Count the consumed documents, and write `consumed.npy` and `ledger.json`."""
    opened, corpus = Mixture.open(mixture), Encoded.open(encoded)
    before = None if ledger is None else Ledger.open(ledger)
    begins, ends = opened.manifest.first_position, before.manifest.consumed_tokens if before else 0
    if begins != ends:
        raise MixingError(
            f"consume: the mixture begins at token {begins} of the run and the ledger ends at {ends}; give "
            "the ledger that the mixture was made with"
        )
    counter = _Counter(out, opened, corpus.manifest, before)
    reader = PackedReader.open(packed)
    begin = before.manifest.read_tokens if before else 0
    if begin + reader.manifest.num_tokens < params.consumed_tokens:
        raise MixingError(
            f"consume: consumed_tokens={params.consumed_tokens}, but the packed sequences end at token "
            f"{begin + reader.manifest.num_tokens} of the run; give at most that"
        )
    counter.count(reader, params.consumed_tokens - begin)
    counter.take_down((ExcludedDocuments.found(mixture), TakedownManifest.found(packed)), corpus, shards)
    counter.manifest(artifact_digest(mixture), params.consumed_tokens).save(out)
    metrics = {"consumed_tokens": params.consumed_tokens, "num_documents": int(counter.consumed[0].sum())}
    return Outcome(metrics=metrics, accounts=counter.accounts())


@dataclass(frozen=True)
class _Parts:
    """Parts of documents; all arrays int64 [n]."""

    key: NDArray[np.int64]  # number of the document among those of all sources, times 65,536, plus its epoch
    start: NDArray[np.int64]  # its first token in the document
    tokens: NDArray[np.int64]  # its tokens

    def where(self, chosen: NDArray[np.bool_]) -> "_Parts":
        return _Parts(self.key[chosen], self.start[chosen], self.tokens[chosen])

    @classmethod
    def joined(cls, parts: Sequence["_Parts"]) -> "_Parts":
        """All parts in their order; those that follow each other in a document are one, at the first."""
        key, start, tokens = (
            np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)])
            for name in ("key", "start", "tokens")
        )
        order = np.lexsort((start, key))
        key, start, tokens = key[order], start[order], tokens[order]
        is_first = np.ones(len(key), dtype=np.bool_)
        is_first[1:] = (key[1:] != key[:-1]) | (start[1:] != start[:-1] + tokens[:-1])
        sums = np.add.reduceat(tokens, np.flatnonzero(is_first)) if len(tokens) else tokens
        places = np.argsort(order[is_first])
        return cls(key[is_first][places], start[is_first][places], sums[places])


class _Counter:
    def __init__(self, out: Path, mixture: Mixture, encoded: EncodedManifest, before: Ledger | None) -> None:
        self._mixture, self._before = mixture, before
        self._shards = [(source.source, shard) for source in encoded.sources for shard in source.shards]
        sizes = [shard.num_documents for _, shard in self._shards]
        self._bounds = np.cumsum([0, *sizes])  # of each shard's documents
        self._sources = [source.source for source in encoded.sources]
        self._numbers = np.cumsum([0, *(len(source.shards) for source in encoded.sources)])
        # how often each document was consumed in the whole run
        self.counts = open_memmap(out / CONSUMED_FILE, "w+", np.uint16, (int(self._bounds[-1]),))
        # documents and tokens consumed of each source in this mixture
        self.consumed = np.zeros((2, len(self._sources)), dtype=np.int64)
        # tokens of documents begun in this mixture
        self._given = np.zeros(len(self._sources), dtype=np.int64)
        self._cuts = _Parts.joined([])
        self._rests = np.empty(0, dtype=np.int64)  # keys of documents begun before
        if before is not None:
            self._carry_over(before)

    def _carry_over(self, before: Ledger) -> None:
        places = {}
        for index, source in enumerate(self._sources):
            own = range(*self._numbers[index : index + 2])
            known, _ = before.matched(source, (self._shards[number][1].digest for number in own))
            for number, shard in zip(own, known, strict=True):
                first = int(self._bounds[number])
                places[source, self._shards[number][1].digest] = first
                if shard is not None:
                    self.counts[first : first + shard.num_documents] = before.consumed(shard)
        cuts = [cut for cut in before.manifest.cuts if (cut.source, cut.digest) in places]
        keys = [(places[cut.source, cut.digest] + cut.document) << 16 | cut.epoch for cut in cuts]
        self._rests = np.array(keys, dtype=np.int64)
        for cut in cuts:
            self.consumed[0, self._sources.index(cut.source)] += 1

    def count(self, reader: PackedReader, num_tokens: int) -> None:
        """Count the documents begun in the first `num_tokens` tokens of packed sequences.

        A document that was read in part is in several parts, of which all but one start after its first
        token. The part with its first token counts it, whether or not that one was read.
        """
        none = np.empty(0, np.int64)
        starts = (part for both in self._divided(reader, num_tokens) for part in both)
        several = np.unique(np.concatenate([none, *(np.unique(part.key[part.start > 0]) for part in starts)]))
        seen = (np.intersect1d(several, read.key) for read, _ in self._divided(reader, num_tokens))
        begun = np.unique(np.concatenate([self._rests, *seen]))
        cuts = []
        for read, left in self._divided(reader, num_tokens):
            cuts.append(left.where(np.isin(left.key, begun)))
            np.add.at(self.consumed[1], self._source_of(read), read.tokens)
            for part in (read, cuts[-1]):
                new = part.where(~np.isin(part.key, self._rests))
                np.add.at(self._given, self._source_of(new), new.tokens)
                firsts = new.where(new.start == 0)
                np.add.at(self.counts, firsts.key >> 16, 1)
                np.add.at(self.consumed[0], self._source_of(firsts), 1)
        self._cuts = _Parts.joined(cuts)

    def _divided(self, reader: PackedReader, num_tokens: int) -> Iterator[tuple[_Parts, _Parts]]:
        """Yield for each packed shard what was read of it, and what was not."""
        for position in range(len(reader.manifest.shards)):
            rows = reader.piece_rows(position).columns
            lengths = rows["length"].astype(np.int64)
            shard = self._numbers[rows["source"]] + rows["shard"]
            key = (self._bounds[shard] + rows["document"]) << 16 | rows["epoch"]
            start = rows["document_start"].astype(np.int64)
            added = FIM_TOKENS * (rows["fim"] > 0)
            given = np.clip(num_tokens - (np.cumsum(lengths) - lengths), 0, lengths)
            # a rearranged piece is consumed as a whole
            given = np.where((added > 0) & (given > 0), lengths, given)
            read, left = np.maximum(given - added, 0), np.where(given > 0, lengths - given, lengths - added)
            yield (
                _Parts(key, start, read).where(read > 0),
                _Parts(key, start + read, left).where(left > 0),
            )
            num_tokens = max(0, num_tokens - int(lengths.sum()))

    def _shard_of(self, parts: _Parts) -> NDArray[np.int64]:
        return np.searchsorted(self._bounds, parts.key >> 16, side="right").astype(np.int64) - 1

    def _source_of(self, parts: _Parts) -> NDArray[np.int64]:
        return np.searchsorted(self._numbers, self._shard_of(parts), side="right").astype(np.int64) - 1

    def take_down(
        self,
        lists: Iterable[ExcludedDocuments | TakedownManifest | None],
        encoded: Encoded,
        shards: Sequence[Path],
    ) -> None:
        """Mark the documents that were taken down from the packed sequences, or excluded from the mixture."""
        ordinals: dict[tuple[str, int], list[int]] = {}
        for document in [document for taken in lists if taken for document in taken.documents]:
            ordinals.setdefault((document.source, document.shard), []).append(document.ordinal)
        for number, (source, entry, path) in enumerate(encoded.pair(shards)):
            its = ordinals.get((source, entry.index))
            if its is not None:
                documents = np.flatnonzero(np.isin(EncodedShard.open(path).ordinals, its))
                self.counts[self._bounds[number] + documents] = TAKEN_DOWN

    def _cut_documents(self) -> tuple[CutDocument, ...]:
        number, cuts = self._shard_of(self._cuts), self._cuts
        columns = {
            "document": (cuts.key >> 16) - self._bounds[number],
            "epoch": cuts.key & 0xFFFF,
            "start": cuts.start,
            "num_tokens": cuts.tokens,
        }
        origins = ((source, entry.digest) for source, entry in (self._shards[k] for k in number.tolist()))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return tuple(
            CutDocument(source=source, digest=digest, **dict(zip(columns, row, strict=True)))
            for (source, digest), row in zip(origins, rows, strict=True)
        )

    def manifest(self, mixture_digest: str, read_tokens: int) -> LedgerManifest:
        """The ledger's manifest: everything but the counts."""
        known = self._before.by_source if self._before else {}
        before = [known[source].given_tokens if source in known else 0 for source in self._sources]
        given = np.array(before, dtype=np.int64) + self._given
        position = (self._before.manifest.position if self._before else 0) + int(self._given.sum())
        request = self._mixture.request()
        requested = given if request is None else request.at(position)
        return LedgerManifest(
            mixture=mixture_digest,
            read_tokens=read_tokens,
            consumed_tokens=position - int(self._cuts.tokens.sum()),
            position=position,
            cuts=self._cut_documents(),
            sources=[
                LedgerSource(
                    source=source,
                    given_tokens=int(given[index]),
                    requested_tokens=float(requested[index]),
                    shards=list(map(self._entry, range(*self._numbers[index : index + 2]))),
                )
                for index, source in enumerate(self._sources)
            ],
        )

    def _entry(self, number: int) -> LedgerShard:
        first, stop = self._bounds[number : number + 2].tolist()
        return LedgerShard(
            digest=self._shards[number][1].digest,
            first=first,
            num_documents=stop - first,
            num_consumed=int(np.count_nonzero(self.counts[first:stop])),
        )

    def accounts(self) -> list[Account]:
        """Accounts of the tokens and documents, in all and consumed; a begun document counts."""
        units: tuple[Unit, ...] = ("documents", "tokens")
        return [
            Account(
                source=source.source,
                unit=unit,
                num_in=(drawn := getattr(source, f"drawn_{unit}")),
                became={"consumed": consumed, "left": drawn - consumed},
            )
            for source, both in zip(self._mixture.manifest.sources, self.consumed.T.tolist(), strict=True)
            for unit, consumed in zip(units, both, strict=True)
        ]


CONSUME = Stage(verb="consume", task="consume", kind="ledger", version=2, params=ConsumeParams, run=run)
