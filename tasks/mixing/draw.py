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
    """Consecutive documents that a source gives."""

    rows: Rows  # array of dtype `tasks.mixing.shuffled.DOCUMENT`
    epochs: NDArray[np.uint16]  # uint16 [n], how often each document was drawn before

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> "Drawn":
        """Documents [start, stop)."""
        return Drawn(self.rows[start:stop], self.epochs[start:stop])


@dataclass
class Stop:
    """Decides when a source has given enough tokens."""

    quota: int  # tokens wanted, in [0, most]
    most: int  # the most tokens
    num_tokens: int = 0  # tokens given so far, including those before this mixture
    least: int = 0  # the fewest tokens, as far as `most` allows, in [0, quota]
    splits: bool = False  # whether the last document is cut at the quota
    is_reached: bool = False  # whether the source has stopped
    next_tokens: int = 0  # tokens of the first document that was not drawn; 0 if unknown

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
    """Totals of the documents drawn of a source so far."""

    num_documents: int = 0  # documents drawn, repetitions included
    num_tokens: int = 0  # their tokens
    unique_documents: int = 0  # documents drawn for the first time
    unique_tokens: int = 0  # their tokens
    longest: int = 0  # tokens of the longest document drawn, or of the first one that was not drawn

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
    """Draws the documents of one source."""

    order: Order  # yields the documents
    stop: Stop  # ends the drawing
    drawn: DrawnTotals = field(default_factory=DrawnTotals)  # totals so far

    def blocks(self) -> Iterator[Drawn]:
        """Yield the documents in order."""
        for drawn in self.order.blocks(self.stop):
            self.drawn.add(drawn)
            yield drawn
        self.drawn.longest = max(self.drawn.longest, self.stop.next_tokens)
