"""Which documents a source gives: whole ones, epoch after epoch, until its tokens are nearest to its quota.

Laws. A source goes through all of its documents once an epoch, each epoch in an order of its own. It stops
less than one document away from its quota, never above its limit, and never at nothing when its quota is not
nothing. A larger quota continues the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.errors import MixingError
from tasks.mixing.lengths import LengthBlock, SourceLengths
from tasks.mixing.order import shuffled
from tasks.mixing.sorting import Rows, Scratch

_MOST_EPOCHS = 1 << 16


class Drawn(NamedTuple):
    """Consecutive documents that a source gives.

    Attributes:
        rows: of `tasks.mixing.order.DOCUMENT`.
        epoch: 0 for the first time through the source.
    """

    rows: Rows
    epoch: int


@dataclass
class Tally:
    """What was drawn of a source so far, and what it has.

    Attributes:
        num_documents: documents drawn, repetitions included.
        num_tokens: their tokens.
        unique_documents: documents drawn for the first time.
        unique_tokens: their tokens.
        longest: tokens of the longest document drawn, or of that at which the source stopped.
        num_empty: documents without tokens, which can never be drawn.
    """

    num_documents: int = 0
    num_tokens: int = 0
    unique_documents: int = 0
    unique_tokens: int = 0
    longest: int = 0
    num_empty: int = 0

    def add(self, drawn: Drawn) -> None:
        """Count documents that were drawn."""
        lengths = drawn.rows["num_tokens"]
        documents, tokens = len(lengths), int(lengths.sum(dtype=np.int64))
        self.num_documents += documents
        self.num_tokens += tokens
        self.unique_documents += documents if drawn.epoch == 0 else 0
        self.unique_tokens += tokens if drawn.epoch == 0 else 0
        self.longest = max(self.longest, int(lengths.max(initial=0)))


@dataclass
class Draw:
    """Draws the documents of one source.

    Attributes:
        source: its name; with the seed it decides the order.
        lengths: its documents.
        quota: tokens wanted, in [0, most].
        most: tokens that may not be exceeded; at least the quota.
        seed: any whole number ≥ 0.
        scratch: where orders that do not fit in memory are kept.
        tally: what was drawn so far.
    """

    source: str
    lengths: SourceLengths
    quota: int
    most: int
    seed: int
    scratch: Scratch
    tally: Tally = field(default_factory=Tally)

    def blocks(self) -> Iterator[Drawn]:
        """Yield the documents in order; of two equally near stops the earlier is taken.

        Raises:
            MixingError: the quota needs more than 65,536 epochs.
        """
        self._check_epochs()
        for block in self._orders():
            taken = block._replace(rows=block.rows[: self._stop(block.rows["num_tokens"])])
            self.tally.add(taken)
            if len(taken.rows):
                yield taken
            if len(taken.rows) < len(block.rows):
                self.tally.longest = max(self.tally.longest, int(block.rows["num_tokens"][len(taken.rows)]))
                return

    def _orders(self) -> Iterator[Drawn]:
        self.tally.num_empty = self._count_empty()
        epoch = 0
        while self.tally.num_tokens < self.quota:
            for rows in shuffled(self.lengths, self.source, self.seed, epoch, self.scratch):
                yield Drawn(rows, epoch)
                if self.tally.num_tokens >= self.quota:
                    return
            epoch += 1

    def _count_empty(self) -> int:
        return sum(_num_empty(block) for block in self.lengths.blocks(self.source))

    def _check_epochs(self) -> None:
        num_epochs = -(-self.quota // max(1, self.lengths.num_tokens))
        if num_epochs > _MOST_EPOCHS:
            raise MixingError(
                f"mix: source '{self.source}' would be drawn {num_epochs} times; at most {_MOST_EPOCHS} are "
                "possible, so give it a smaller weight or more text"
            )

    def _stop(self, lengths: NDArray[np.uint32]) -> int:
        """How many of the next documents come nearest to the quota; all of them if they stay below it."""
        sums = np.cumsum(lengths, dtype=np.int64) + self.tally.num_tokens
        above = int(np.searchsorted(sums, self.quota))  # the first stop that reaches the quota
        if above == len(sums):
            return above
        below_tokens = int(sums[above - 1]) if above else self.tally.num_tokens
        nearer_above = int(sums[above]) - self.quota < self.quota - below_tokens
        at_least = int(self.tally.num_documents == 0)
        return max(at_least, above + (nearer_above and int(sums[above]) <= self.most))


def _num_empty(block: LengthBlock) -> int:
    return int(np.count_nonzero(block.lengths == 0))
