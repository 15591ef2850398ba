"""Consume: write the ledger of the documents of a mixture that a training run has read.

The model. A run reads packed sequences in their order, so the number of tokens that it read determines which
pieces of which documents it has seen. A document of which a piece was read counts as consumed, and the ledger
records the rest of it, in parts: packing neither keeps the order of a mixture exactly nor a document
together. If the mixture continues an earlier ledger, its counts are added.

Laws. Per source: documents and tokens of the plan = consumed + left. Documents that were taken down before
are marked, so that they are not drawn again. Memory: the pieces of a packed shard, and eight bytes for each
document in several pieces; the counts are a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage, Unit
from tokmill.tasks.encode.stage import artifact_digest
from tokmill.tasks.fim.tokens import FIM_TOKENS
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
    _check_ledger(opened, before)
    counter = _ConsumedCounter(out, opened, corpus.manifest, before)
    reader = PackedReader.open(packed)
    begin = before.manifest.read_tokens if before else 0
    if begin + reader.manifest.num_tokens < params.consumed_tokens:
        raise MixingError(
            f"consume: consumed_tokens={params.consumed_tokens}, but the packed sequences end at token "
            f"{begin + reader.manifest.num_tokens} of the run; give at most that"
        )
    counter.count(reader, params.consumed_tokens - begin)
    _take_down(counter, mixture, packed, corpus, shards)
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


class _ConsumedCounter:
    """Counts the documents of which a piece was read.

    Attributes:
        counts: uint16 [documents of all sources], how often each was consumed.
        consumed: documents and tokens consumed of each source in this mixture, int64 [2, s].
    """

    def __init__(self, out: Path, mixture: Mixture, encoded: EncodedManifest, before: Ledger | None) -> None:
        self._mixture, self._before = mixture, before
        self._sources = encoded.sources
        sizes = [[shard.num_documents for shard in source.shards] for source in encoded.sources]
        bounds = np.cumsum([0, *(size for source in sizes for size in source)])
        self._bounds = bounds
        self._numbers = np.cumsum([0, *map(len, sizes)])  # of each source's first shard
        self.counts = open_memmap(out / CONSUMED_FILE, "w+", np.uint16, (int(bounds[-1]),))
        self.consumed = np.zeros((2, len(sizes)), dtype=np.int64)
        self._given = np.zeros(len(sizes), dtype=np.int64)  # tokens of the documents begun in this mixture
        self._cuts = _Parts.joined([])
        self._rests = np.empty(0, dtype=np.int64)  # keys of documents begun before
        if before is not None:
            self._carry_over(before)

    def _carry_over(self, before: Ledger) -> None:
        """Copy the counts of the ledger that the mixture continues."""
        places = {}
        for index, source in enumerate(self._sources):
            firsts = self._bounds[self._numbers[index] : self._numbers[index + 1]]
            known, _ = before.matched(source.source, (shard.digest for shard in source.shards))
            for shard, mine, first in zip(known, source.shards, firsts.tolist(), strict=True):
                places[source.source, mine.digest] = first
                if shard is not None:
                    self.counts[first : first + shard.num_documents] = before.consumed(shard)
        known_cuts = [cut for cut in before.manifest.cuts if (cut.source, cut.digest) in places]
        self._rests = np.array(
            [(places[cut.source, cut.digest] + cut.document) << 16 | cut.epoch for cut in known_cuts],
            dtype=np.int64,
        )
        for cut in known_cuts:
            self.consumed[0, [source.source for source in self._sources].index(cut.source)] += 1

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
            self._add(self.consumed[1], read)
            for part in (read, cuts[-1]):
                new = part.where(~np.isin(part.key, self._rests))
                self._add(self._given, new)
                self._count(new.where(new.start == 0))
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

    def _source_of(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        shard = np.searchsorted(self._bounds, key >> 16, side="right") - 1
        found: NDArray[np.int64] = np.searchsorted(self._numbers, shard, side="right") - 1
        return found

    def _add(self, sums: NDArray[np.int64], parts: _Parts) -> None:
        """Add the parts' tokens to the sums of their sources."""
        np.add.at(sums, self._source_of(parts.key), parts.tokens)

    def _count(self, firsts: _Parts) -> None:
        """Count documents, given by their first parts."""
        np.add.at(self.counts, firsts.key >> 16, 1)
        np.add.at(self.consumed[0], self._source_of(firsts.key), 1)

    def take_down(self, source: int, shard: int, documents: NDArray[np.int64]) -> None:
        """Mark documents of a shard as taken down."""
        self.counts[self._bounds[self._numbers[source] + shard] + documents] = TAKEN_DOWN

    def _cut_documents(self) -> tuple[CutDocument, ...]:
        shards = [(source.source, shard.digest) for source in self._sources for shard in source.shards]
        number = np.searchsorted(self._bounds, self._cuts.key >> 16, side="right") - 1
        columns = (
            number,
            (self._cuts.key >> 16) - self._bounds[number],
            self._cuts.key & 0xFFFF,
            self._cuts.start,
            self._cuts.tokens,
        )
        return tuple(
            CutDocument(
                source=shards[shard][0],
                digest=shards[shard][1],
                document=document,
                epoch=epoch,
                start=start,
                num_tokens=tokens,
            )
            for shard, document, epoch, start, tokens in zip(*(c.tolist() for c in columns), strict=True)
        )

    def manifest(self, mixture_digest: str, read_tokens: int) -> LedgerManifest:
        """The ledger's manifest: everything but the counts."""
        given = self._given_in_all()
        position = (self._before.manifest.position if self._before else 0) + int(self._given.sum())
        request = self._mixture.request()
        asked = None if request is None else request.at(position)
        sources = []
        for index, source in enumerate(self._sources):
            firsts = self._bounds[self._numbers[index] : self._numbers[index + 1]]
            shards = [
                LedgerShard(
                    digest=shard.digest,
                    first=int(first),
                    num_documents=shard.num_documents,
                    num_consumed=int(np.count_nonzero(self.counts[first : first + shard.num_documents])),
                )
                for shard, first in zip(source.shards, firsts.tolist(), strict=True)
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
            read_tokens=read_tokens,
            consumed_tokens=position - int(self._cuts.tokens.sum()),
            position=position,
            cuts=self._cut_documents(),
            sources=sources,
        )

    def _given_in_all(self) -> NDArray[np.int64]:
        """Number of tokens that each source has given in the whole run."""
        known = self._before.by_source if self._before else {}
        before = [known[s.source].given_tokens if s.source in known else 0 for s in self._sources]
        return np.array(before, dtype=np.int64) + self._given

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


def _take_down(
    counter: _ConsumedCounter, mixture: Path, packed: Path, encoded: Encoded, shards: Sequence[Path]
) -> None:
    """Mark the documents that were taken down from the packed sequences, or excluded from the mixture."""
    lists = (ExcludedDocuments.found(mixture), TakedownManifest.found(packed))
    ordinals: dict[tuple[str, int], list[int]] = {}
    for document in [document for taken in lists if taken for document in taken.documents]:
        ordinals.setdefault((document.source, document.shard), []).append(document.ordinal)
    places = {source: index for index, source in enumerate(encoded.sources)}
    for source, entry, path in encoded.pair(shards):
        its = ordinals.get((source, entry.index))
        if its is not None:
            found = np.flatnonzero(np.isin(EncodedShard.open(path).ordinals, its))
            counter.take_down(places[source], entry.index, found)


CONSUME = Stage(verb="consume", task="consume", kind="ledger", version=2, params=ConsumeParams, run=run)
