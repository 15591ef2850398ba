"""The lengths of a source's documents, block by block, and what a run consumed of them before a mixture."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError, StoreError
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.mixture import TAKEN_DOWN, CutDocument, Ledger
from tokmill.tasks.mixing.curves import Curves

BLOCK = 1 << 20
_U32 = 1 << 32


class LengthBlock(NamedTuple):
    """Consecutive documents of one shard."""

    shard: int  # index among the source's shards
    first: int  # position of the first document in the shard
    lengths: NDArray[np.int64]  # [n], tokens per document
    consumed: NDArray[np.uint16]  # [n], how often each was consumed before; `TAKEN_DOWN` if it was taken down


@dataclass(frozen=True)
class ShardLengths:
    """The document lengths of one shard."""

    num_documents: int
    num_tokens: int
    digest: str
    offsets: Callable[[], NDArray[np.int64]]  # opens [d + 1], from 0 to `num_tokens`
    consumed: Callable[[], NDArray[np.uint16]] | None = None  # opens [d], how often each was consumed before


@dataclass(frozen=True)
class SourceLengths:
    """The document lengths of one source, in the order of its shards."""

    shards: Sequence[ShardLengths]

    @classmethod
    def of_arrays(cls, shards: Sequence[NDArray[np.int64]]) -> "SourceLengths":
        """Wrap lengths that are already in memory: int64 [d] for each shard."""
        offsets = [np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) for lengths in shards]
        return cls(
            [
                ShardLengths(len(ends) - 1, int(ends[-1]), f"{index:064}", partial(np.asarray, ends))
                for index, ends in enumerate(offsets)
            ]
        )

    @property
    def num_documents(self) -> int:
        """Number of documents in all shards."""
        return sum(shard.num_documents for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return sum(shard.num_tokens for shard in self.shards)

    def blocks(self, source: str) -> Iterator[LengthBlock]:
        """Yield all lengths in order; `source` is for messages."""
        for index, shard in enumerate(self.shards):
            offsets = shard.offsets()
            actual = (len(offsets) - 1, int(offsets[-1]))
            if actual != (shard.num_documents, shard.num_tokens):
                raise StoreError(
                    f"mix: shard {index} of '{source}' has {actual[0]} documents and {actual[1]} tokens, its "
                    f"manifest says {shard.num_documents} and {shard.num_tokens}; verify the artifact"
                )
            consumed = shard.consumed() if shard.consumed else np.zeros(shard.num_documents, dtype=np.uint16)
            for first in range(0, shard.num_documents, BLOCK):
                lengths = np.diff(offsets[first : first + BLOCK + 1])
                if (longest := int(lengths.max())) >= _U32:
                    raise MixingError(
                        f"mix: source '{source}' has a document of {longest} tokens; it must have fewer than "
                        f"{_U32}, so split it"
                    )
                yield LengthBlock(index, first, lengths, consumed[first : first + BLOCK])


@dataclass(frozen=True)
class Standing:
    """Counts of a source's documents before a mixture is planned; pairs are (documents, tokens)."""

    empty: int  # documents without tokens
    consumed: tuple[int, int]  # those consumed before
    taken_down: tuple[int, int]  # those that were taken down
    least: int  # the fewest times that any drawable document was consumed

    @classmethod
    def of(cls, source: str, sizes: SourceLengths) -> "Standing":
        """Count the documents that can and cannot be drawn; reads all lengths once."""
        sums, empty, least = np.zeros((2, 2), dtype=np.int64), 0, TAKEN_DOWN
        for _, _, lengths, consumed in sizes.blocks(source):
            has_tokens, is_taken = lengths > 0, consumed == TAKEN_DOWN
            empty += int(np.count_nonzero(~has_tokens))
            for k, chosen in enumerate((has_tokens & (consumed > 0) & ~is_taken, has_tokens & is_taken)):
                sums[k] += (np.count_nonzero(chosen), lengths[chosen].sum())
            least = min(least, int(np.min(consumed[has_tokens & ~is_taken], initial=TAKEN_DOWN)))
        (again, again_tokens), (taken, taken_tokens) = sums.tolist()
        return cls(empty, (again, again_tokens), (taken, taken_tokens), least)


def source_lengths(encoded: Encoded, shards: Sequence[Path]) -> dict[str, SourceLengths]:
    """The document lengths of every source of an encoded corpus; shards are opened when they are read."""
    by_source: dict[str, list[ShardLengths]] = {source: [] for source in encoded.sources}
    for source, entry, path in encoded.pair(shards):
        numbers = (entry.num_documents, entry.num_tokens, entry.digest)
        by_source[source].append(ShardLengths(*numbers, partial(_offsets, path)))
    return {source: SourceLengths(parts) for source, parts in by_source.items()}


def _offsets(path: Path) -> NDArray[np.int64]:
    return EncodedShard.open(path).offsets


@dataclass(frozen=True)
class History:
    """The tokens and documents consumed before a mixture."""

    begin: int = 0  # tokens of the run consumed before; the mixture begins there
    position: int = 0  # `begin`, and the tokens of `cuts`
    given: Mapping[str, int] = field(default_factory=dict)  # tokens by source, begun documents as whole
    requested: Mapping[str, float] = field(default_factory=dict)  # tokens by source, up to `position`
    cuts: tuple[CutDocument, ...] = ()  # what remains of begun documents

    @classmethod
    def of(cls, ledger: Ledger, sources: Mapping[str, SourceLengths]) -> "History":
        """The history of these sources according to a ledger."""
        known = {name: entry for name, entry in ledger.by_source.items() if name in sources}
        manifest = ledger.manifest
        return cls(
            begin=manifest.consumed_tokens,
            position=manifest.position,
            given={name: entry.given_tokens for name, entry in known.items()},
            requested={name: entry.requested_tokens for name, entry in known.items()},
            cuts=tuple(cut for cut in manifest.cuts if cut.source in sources),
        )

    def shifts(self, curves: Curves) -> dict[str, Decimal]:
        """For each source, the tokens that the curves request up to `position` beyond those requested before.

        A source that has given g tokens continues on the curve at g plus this shift.
        """
        if not self.position:
            return dict.fromkeys(curves.sources, Decimal(0))
        now = curves.table.at(float(self.position)).tolist()
        return {
            source: Decimal(tokens - self.requested.get(source, 0.0))
            for source, tokens in zip(curves.sources, now, strict=True)
        }


NOTHING = History()


def with_consumed(sources: Mapping[str, SourceLengths], ledger: Ledger) -> dict[str, SourceLengths]:
    """The same sources with the ledger's counts of their documents."""
    counted = dict(sources)
    for name in [name for name in sources if name in ledger.by_source]:
        shards = sources[name].shards
        known, unmatched = ledger.matched(name, (shard.digest for shard in shards))
        for shard in unmatched:
            if shard.num_consumed:
                raise MixingError(
                    f"mix: {shard.num_consumed} documents of source '{name}' were consumed from shard "
                    f"{shard.digest[:12]}, which is not in this encoding, so the rest of that shard is "
                    "unknown; mix an encoding that has that shard, or give the source another name"
                )
        counted[name] = SourceLengths(
            [
                shard if before is None else replace(shard, consumed=partial(ledger.consumed, before))
                for shard, before in zip(shards, known, strict=True)
            ]
        )
    return counted
