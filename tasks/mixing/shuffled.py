"""The shuffled order of a source's documents, a new one in each epoch.

The model. A document's key is a 64-bit hash of its shard and its position in it, keyed by the seed, the
source's name and the epoch. The documents are sorted by key. So every document occurs exactly once, the order
is pseudo-random, and sorting works in bounded memory (`tasks.mixing.sorting`).

Laws. No document is repeated before all have been drawn. A source's order does not change with other sources,
weights or totals, nor does adding shards reorder its other documents. Documents without tokens are never
drawn.
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
    """One source's documents, shuffled."""

    source: str  # name of the source; with the seed, it decides the order
    lengths: SourceLengths  # lengths of its documents
    seed: int  # any whole number ≥ 0
    scratch: Scratch  # scratch space for orders that do not fit in memory
    first_epoch: int = 0  # the fewest times that any document was consumed before

    def blocks(self, stop: Stop) -> Iterator[Drawn]:
        """Yield documents, epoch after epoch, until `stop` is reached."""
        check_epochs(self.source, num_epochs(stop, self.lengths))
        return stop.applied(self._epochs()) if not stop.is_reached else iter(())

    def _epochs(self) -> Iterator[Drawn]:
        for epoch in range(self.first_epoch, MOST_EPOCHS):
            for rows in self.epoch(epoch):
                yield Drawn(rows, np.full(len(rows), epoch, dtype=np.uint16))

    def epoch(self, epoch: int) -> Iterator[Rows]:
        """Yield the documents in the order of one epoch, without those already consumed more often."""
        key = permutation_key("mix", self.seed, self.source, epoch)
        blocks = (_keyed(documents(block, epoch), key) for block in self.lengths.blocks(self.source))
        return sorted_rows(blocks, self.scratch)


def num_epochs(stop: Stop, lengths: SourceLengths) -> int:
    """The number of epochs of a source, including a last partial one."""
    return -(-stop.quota // max(1, lengths.num_tokens))


def check_epochs(source: str, number: int) -> None:
    """Reject more epochs of a source than a plan can store."""
    if number > MOST_EPOCHS:
        raise MixingError(
            f"mix: source '{source}' would be drawn {number} times; at most {MOST_EPOCHS} are possible, "
            "so give it a smaller weight or more text"
        )


def _keyed(rows: Rows, key: Key) -> Rows:
    rows["key"] = document_keys(rows, key)
    return rows


def documents(block: LengthBlock, epoch: int) -> Rows:
    """A block's non-empty documents that were consumed at most `epoch` times; their keys are not set."""
    kept = np.flatnonzero((block.lengths > 0) & (block.consumed <= epoch))
    rows = np.empty(len(kept), dtype=DOCUMENT)
    rows["shard"], rows["document"] = block.shard, kept + block.first
    rows["num_tokens"] = block.lengths[kept]
    return rows


def document_keys(rows: Rows, key: Key) -> NDArray[np.uint64]:
    """Hash documents, uint64 [n]; different documents of one source have different hashes."""
    words = (rows["shard"].astype(np.uint64) << np.uint64(32)) | rows["document"]
    return scrambled(scrambled(words, key[0]), key[1])
