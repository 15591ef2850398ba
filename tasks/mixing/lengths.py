"""The lengths of a source's documents, read block by block, and what a run consumed of them before a mixture.

A mixture may continue another one, as a ledger says: it begins at a position of the run, every source has
already given tokens, and every document was consumed a number of times. Shares and curricula depend on the
position in the whole run. The difference between the requested and the given tokens of a source is carried
over.

Laws. With the parameters and sources of the earlier mixture, the new one is the rest of it. With others, no
document is drawn again before all documents of its source have been drawn as often, and what remains of begun
documents comes first.
"""

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
    """Consecutive documents of one shard.

    Attributes:
        shard: index among the source's shards.
        first: position of the first document in the shard.
        lengths: int64 [n], tokens per document.
        consumed: uint16 [n], how often each was consumed before; `TAKEN_DOWN` if it was taken down.
    """

    shard: int
    first: int
    lengths: NDArray[np.int64]
    consumed: NDArray[np.uint16]


@dataclass(frozen=True)
class ShardLengths:
    """The document lengths of one shard.

    Attributes:
        num_documents: documents in the shard.
        num_tokens: their tokens.
        digest: the shard's content digest.
        offsets: opens int64 [d + 1], from 0 to `num_tokens`; document k has `offsets[k + 1] - offsets[k]`.
        consumed: opens uint16 [d], how often each document was consumed before; None if none was.
    """

    num_documents: int
    num_tokens: int
    digest: str
    offsets: Callable[[], NDArray[np.int64]]
    consumed: Callable[[], NDArray[np.uint16]] | None = None


@dataclass(frozen=True)
class SourceLengths:
    """The document lengths of one source, in the order of its shards."""

    shards: Sequence[ShardLengths]

    @classmethod
    def of_arrays(cls, shards: Sequence[NDArray[np.int64]]) -> "SourceLengths":
        """Wrap lengths that are already in memory: int64 [d] for each shard."""
        return cls([_in_memory(index, lengths) for index, lengths in enumerate(shards)])

    @property
    def num_documents(self) -> int:
        """Number of documents in all shards."""
        return sum(shard.num_documents for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return sum(shard.num_tokens for shard in self.shards)

    def standing(self, source: str) -> "Standing":
        """Count the documents that can and cannot be drawn; reads all lengths once."""
        found = Standing()
        for block in self.blocks(source):
            found.add(block)
        return found

    def blocks(self, source: str, size: int = BLOCK) -> Iterator[LengthBlock]:
        """Yield all lengths in order, at most `size` at a time; `source` is for messages."""
        for index, shard in enumerate(self.shards):
            offsets = shard.offsets()
            found = (len(offsets) - 1, int(offsets[-1]))
            if found != (shard.num_documents, shard.num_tokens):
                raise StoreError(
                    f"mix: shard {index} of '{source}' has {found[0]} documents and {found[1]} tokens, its "
                    f"manifest says {shard.num_documents} and {shard.num_tokens}; verify the artifact"
                )
            consumed = shard.consumed() if shard.consumed else np.zeros(shard.num_documents, dtype=np.uint16)
            for first in range(0, shard.num_documents, size):
                lengths = np.diff(offsets[first : first + size + 1])
                _check_longest(source, int(lengths.max()))
                yield LengthBlock(index, first, lengths, consumed[first : first + size])


@dataclass
class Standing:
    """Counts of a source's documents before a mixture is planned."""

    empty: int = 0  # documents without tokens
    consumed: tuple[int, int] = (0, 0)  # number of documents consumed before, and of their tokens
    taken_down: tuple[int, int] = (0, 0)  # number of documents that were taken down, and of their tokens
    least: int = TAKEN_DOWN  # the fewest times that any drawable document was consumed

    def add(self, block: LengthBlock) -> None:
        """Count a block."""
        has_tokens = block.lengths > 0
        taken = has_tokens & (block.consumed == TAKEN_DOWN)
        again = has_tokens & (block.consumed > 0) & ~taken
        self.empty += int(np.count_nonzero(~has_tokens))
        self.consumed = _added(self.consumed, block.lengths[again])
        self.taken_down = _added(self.taken_down, block.lengths[taken])
        self.least = min(self.least, int(np.min(block.consumed[has_tokens & ~taken], initial=TAKEN_DOWN)))


def _added(before: tuple[int, int], lengths: NDArray[np.int64]) -> tuple[int, int]:
    return before[0] + len(lengths), before[1] + int(lengths.sum())


def _check_longest(source: str, longest: int) -> None:
    if longest >= _U32:
        raise MixingError(
            f"mix: source '{source}' has a document of {longest} tokens; it must have fewer than {_U32}, so "
            "split it"
        )


def _in_memory(index: int, lengths: NDArray[np.int64]) -> ShardLengths:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ShardLengths(len(lengths), int(offsets[-1]), f"{index:064}", lambda: offsets)


def source_lengths(encoded: Encoded, shards: Sequence[Path]) -> dict[str, SourceLengths]:
    """The document lengths of every source of an encoded corpus; shards are opened when they are read."""
    found: dict[str, list[ShardLengths]] = {source: [] for source in encoded.sources}
    for source, entry, path in encoded.pair(shards):
        found[source].append(ShardLengths(entry.num_documents, entry.num_tokens, entry.digest, _opener(path)))
    return {source: SourceLengths(parts) for source, parts in found.items()}


def _opener(path: Path) -> Callable[[], NDArray[np.int64]]:
    return lambda: EncodedShard.open(path).offsets


@dataclass(frozen=True)
class History:
    """The tokens and documents consumed before a mixture.

    Attributes:
        begin: tokens of the run consumed before; the mixture begins there.
        position: `begin`, and the tokens of `cuts`.
        given: tokens that each source has given, counting begun documents as whole.
        requested: tokens requested of each source up to `position`.
        cuts: what remains of begun documents.
    """

    begin: int = 0
    position: int = 0
    given: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, float] = field(default_factory=dict)
    cuts: tuple[CutDocument, ...] = ()

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

        A source that has given g tokens continues on the curve at g plus this shift. So a deficit or surplus
        of tokens is carried over.
        """
        if not self.position:
            return dict.fromkeys(curves.sources, Decimal(0))
        now = np.array([float(self.position)])
        return {
            source: Decimal(float(curves.doubles(index, now)[0]) - self.requested.get(source, 0.0))
            for index, source in enumerate(curves.sources)
        }


NOTHING = History()


def with_consumed(sources: Mapping[str, SourceLengths], ledger: Ledger) -> dict[str, SourceLengths]:
    """The same sources with the ledger's counts of their documents."""
    return {
        name: _of_source(name, found, ledger) if name in ledger.by_source else found
        for name, found in sources.items()
    }


def _of_source(name: str, found: SourceLengths, ledger: Ledger) -> SourceLengths:
    known, left = ledger.matched(name, (shard.digest for shard in found.shards))
    for shard in left:
        if shard.num_consumed:
            raise MixingError(
                f"mix: {shard.num_consumed} documents of source '{name}' were consumed from shard "
                f"{shard.digest[:12]}, which is not in this encoding, so the rest of that shard is "
                "unknown; mix an encoding that has that shard, or give the source another name"
            )
    return SourceLengths(
        [
            shard if before is None else replace(shard, consumed=partial(ledger.consumed, before))
            for shard, before in zip(found.shards, known, strict=True)
        ]
    )
