"""Draw a source's documents in its order: whole ones, until its tokens are nearest to its quota.

Laws. A source stops less than one document away from its quota, never above its limit, and gives at least one
document if its quota is not 0. It does not stop below its floor, unless the next document would exceed its
limit. If long documents are split, it stops exactly at its quota: the last document is cut there, and its
rest is not drawn. A larger quota continues the same order, unless the order depends on the quota.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.mixing.sorting import Rows


class Drawn(NamedTuple):
    """Consecutive documents that a source gives.

    Attributes:
        rows: array of dtype `tasks.mixing.shuffled.DOCUMENT`.
        epochs: uint16 [n], how often each document was drawn before.
    """

    rows: Rows
    epochs: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> "Drawn":
        """Documents [start, stop)."""
        return Drawn(self.rows[start:stop], self.epochs[start:stop])


@dataclass
class Stop:
    """Decides when a source has given enough tokens.

    Attributes:
        quota: tokens wanted, in [0, most].
        most: the most tokens.
        least: the fewest tokens, as far as `most` allows, in [0, quota].
        splits: whether the last document is cut at the quota.
        num_tokens: tokens given so far, including those before this mixture.
        is_reached: whether the source has stopped.
        next_tokens: tokens of the first document that was not drawn; 0 if unknown.
    """

    quota: int
    most: int
    num_tokens: int = 0
    least: int = 0
    splits: bool = False
    is_reached: bool = False
    next_tokens: int = 0

    def __post_init__(self) -> None:
        self.is_reached = self.num_tokens >= self.quota

    def applied(self, blocks: Iterable[Drawn]) -> Iterator[Drawn]:
        """Yield the documents before the stop; of two equally near stops, the earlier one."""
        for block in map(self._cut, blocks) if self.splits else blocks:
            lengths = block.rows["num_tokens"]
            number = self._number(lengths)
            self.num_tokens += int(lengths[:number].sum(dtype=np.int64))
            if number:
                yield block.cut(0, number)
            if number < len(block):
                self.next_tokens, self.is_reached = int(lengths[number]), True
            self.is_reached = self.is_reached or self.num_tokens >= self.quota
            if self.is_reached:
                return

    def _cut(self, block: Drawn) -> Drawn:
        """The documents up to the quota, with the last one cut there; all of them if they stay below it."""
        sums = np.cumsum(block.rows["num_tokens"], dtype=np.int64) + self.num_tokens
        last = int(np.searchsorted(sums, self.quota))
        if last == len(sums):
            return block
        found = block.cut(0, last + 1)
        rows = found.rows.copy()
        rows["num_tokens"][last] -= sums[last] - self.quota
        return Drawn(rows, found.epochs)

    def _number(self, lengths: NDArray[np.uint32]) -> int:
        """The number of next documents that come nearest to the quota; all of them if they stay below it."""
        sums = np.cumsum(lengths, dtype=np.int64) + self.num_tokens
        above = int(np.searchsorted(sums, self.quota))  # the first stop that reaches the quota
        if above == len(sums):
            return above
        below_tokens = int(sums[above - 1]) if above else self.num_tokens
        goes_on = int(sums[above]) - self.quota < self.quota - below_tokens or below_tokens < self.least
        return max(int(self.num_tokens == 0), above + (goes_on and int(sums[above]) <= self.most))


class Order(Protocol):
    """The order in which one source's documents come."""

    def blocks(self, stop: Stop) -> Iterator[Drawn]:
        """Yield documents, and apply `stop` to end them."""
        ...


@dataclass
class DrawnTotals:
    """Totals of the documents drawn of a source so far.

    Attributes:
        num_documents: documents drawn, repetitions included.
        num_tokens: their tokens.
        unique_documents: documents drawn for the first time.
        unique_tokens: their tokens.
        longest: tokens of the longest document drawn, or of the first one that was not drawn.
    """

    num_documents: int = 0
    num_tokens: int = 0
    unique_documents: int = 0
    unique_tokens: int = 0
    longest: int = 0

    def add(self, drawn: Drawn) -> None:
        """Add drawn documents."""
        lengths, first = drawn.rows["num_tokens"], drawn.epochs == 0
        self.num_documents += len(lengths)
        self.num_tokens += int(lengths.sum(dtype=np.int64))
        self.unique_documents += int(np.count_nonzero(first))
        self.unique_tokens += int(lengths[first].sum(dtype=np.int64))
        self.longest = max(self.longest, int(lengths.max(initial=0)))


@dataclass
class Draw:
    """Draws the documents of one source.

    Attributes:
        order: yields the documents.
        stop: ends the drawing.
        drawn: totals so far.
    """

    order: Order
    stop: Stop
    drawn: DrawnTotals = field(default_factory=DrawnTotals)

    def blocks(self) -> Iterator[Drawn]:
        """Yield the documents in order."""
        for drawn in self.order.blocks(self.stop):
            self.drawn.add(drawn)
            yield drawn
        self.drawn.longest = max(self.drawn.longest, self.stop.next_tokens)
