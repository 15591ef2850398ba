"""The order in which a source gives its documents: shuffled anew each time through it.

The model. A document's key is a hash of 64 bits of its shard and its place there, under a secret that follows
from the seed, the source's name and the epoch; the documents come by ascending key. This is a permutation
whatever the hash, and one that nobody can tell from a random one: it is sorted, so that every document occurs
exactly once, and sorting works in bounded memory (`tasks.mixing.sorting`).

Laws. Nothing comes again before everything has come. Another source, weight or total does not reshuffle a
source, and neither does text that is added to it in further shards. Documents without tokens never come.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.draw import Drawn, Stop
from tokmill.tasks.mixing.lengths import LengthBlock, SourceLengths
from tokmill.tasks.mixing.permutation import Key, permutation_key, scrambled
from tokmill.tasks.mixing.sorting import Rows, Scratch, sorted_rows

DOCUMENT = np.dtype([("key", "<u8"), ("shard", "<u4"), ("document", "<u4"), ("num_tokens", "<u4")])
MOST_EPOCHS = (1 << 16) - 1


@dataclass(frozen=True)
class Shuffled:
    """One source's documents, shuffled.

    Attributes:
        source: its name; with the seed it decides the order.
        lengths: its documents.
        seed: any whole number ≥ 0.
        scratch: where orders that do not fit in memory are kept.
        first_epoch: how often every document was consumed before at least.
    """

    source: str
    lengths: SourceLengths
    seed: int
    scratch: Scratch
    first_epoch: int = 0

    def blocks(self, stop: Stop) -> Iterator[Drawn]:
        """Yield documents, epoch after epoch, until `stop` is reached.

        Raises:
            MixingError: that takes more than 65,535 epochs.
        """
        check_epochs(self.source, num_epochs(stop, self.lengths))
        return stop.applied(self._epochs()) if not stop.is_reached else iter(())

    def _epochs(self) -> Iterator[Drawn]:
        for epoch in range(self.first_epoch, MOST_EPOCHS):
            for rows in self.epoch(epoch):
                yield Drawn(rows, np.full(len(rows), epoch, dtype=np.uint16))

    def epoch(self, epoch: int) -> Iterator[Rows]:
        """Yield the documents in the order of one epoch, but for those that have come as often already."""
        key = permutation_key("mix", self.seed, self.source, epoch)
        blocks = (_keyed(documents(block, epoch), key) for block in self.lengths.blocks(self.source))
        return sorted_rows(blocks, self.scratch)


def num_epochs(stop: Stop, lengths: SourceLengths) -> int:
    """How often a source is gone through, the last time perhaps in part."""
    return -(-stop.quota // max(1, lengths.num_tokens))


def check_epochs(source: str, number: int) -> None:
    """Refuse more epochs of a source than can be written down.

    Raises:
        MixingError: that is so.
    """
    if number > MOST_EPOCHS:
        raise MixingError(
            f"mix: source '{source}' would be drawn {number} times; at most {MOST_EPOCHS} are possible, "
            "so give it a smaller weight or more text"
        )


def _keyed(rows: Rows, key: Key) -> Rows:
    rows["key"] = document_keys(rows, key)
    return rows


def documents(block: LengthBlock, epoch: int) -> Rows:
    """A block's documents that have tokens and came at most `epoch` times; their keys are not set."""
    kept = np.flatnonzero((block.lengths > 0) & (block.consumed <= epoch))
    rows = np.empty(len(kept), dtype=DOCUMENT)
    rows["shard"], rows["document"] = block.shard, kept + block.first
    rows["num_tokens"] = block.lengths[kept]
    return rows


def document_keys(rows: Rows, key: Key) -> NDArray[np.uint64]:
    """Hash documents, uint64 [n]; different documents of one source have different hashes."""
    words = (rows["shard"].astype(np.uint64) << np.uint64(32)) | rows["document"]
    return scrambled(scrambled(words, key[0]), key[1])
