"""Draw a source's documents in a random order, a new one each epoch, until its tokens come nearest its quota.

A source stops less than one document from its quota, never above its limit, and with at least one document
if its quota is not 0. The order does not change with other sources, weights, totals or shards.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.lengths import LengthBlock, SourceLengths
from tokmill.tasks.mixing.permutation import Key, permutation_key, scrambled
from tokmill.tasks.mixing.sorting import Rows, Scratch, sorted_rows

DOCUMENT = np.dtype(
    [("key", "<u8"), ("shard", "<u4"), ("document", "<u4"), ("num_tokens", "<u4"), ("epoch", "<u2")]
)
_MOST_EPOCHS = (1 << 16) - 1


@dataclass
class Draw:
    """Decides when a source has given enough tokens, and adds up what it gives."""

    quota: int  # tokens wanted in the whole run, in [0, most]
    most: int  # the most tokens
    given: int = 0  # tokens given in the whole run so far
    least: int = 0  # the fewest tokens, as far as `most` allows, in [0, quota]
    splits: bool = False  # whether the last document is cut at the quota
    num_documents: int = 0  # documents drawn, repetitions included
    num_tokens: int = 0  # their tokens
    unique_documents: int = 0  # documents drawn for the first time
    unique_tokens: int = 0  # their tokens
    longest: int = 0  # tokens of the longest document drawn, or of the first one that was not drawn

    def __post_init__(self) -> None:
        self.is_reached = self.given >= self.quota

    def taken(self, blocks: Iterable[Rows]) -> Iterator[Rows]:
        """Yield the documents, of a dtype with the fields of `DOCUMENT`, before the stop."""
        for block in blocks if not self.is_reached else ():
            rows = self._cut(block) if self.splits else block
            lengths = rows["num_tokens"]
            number = self._number(lengths)
            self.given += int(lengths[:number].sum(dtype=np.int64))
            if number < len(rows):
                self.longest = max(self.longest, int(lengths[number]))
            self.is_reached = number < len(rows) or self.given >= self.quota
            if number:
                self.add(lengths[:number], rows["epoch"][:number] == 0)
                yield rows[:number]
            if self.is_reached:
                return

    def add(self, lengths: NDArray[np.uint32], is_first: NDArray[np.bool_]) -> None:
        """Count documents of these lengths, some of which come for the first time."""
        self.num_documents += len(lengths)
        self.num_tokens += int(lengths.sum(dtype=np.int64))
        self.unique_documents += int(np.count_nonzero(is_first))
        self.unique_tokens += int(lengths[is_first].sum(dtype=np.int64))
        self.longest = max(self.longest, int(lengths.max(initial=0)))

    def _cut(self, rows: Rows) -> Rows:
        """The documents up to the quota, with the last one cut there; all of them if they stay below it."""
        sums = np.cumsum(rows["num_tokens"], dtype=np.int64) + self.given
        last = int(np.searchsorted(sums, self.quota))
        if last == len(sums):
            return rows
        upto = rows[: last + 1].copy()
        upto["num_tokens"][last] -= sums[last] - self.quota
        return upto

    def _number(self, lengths: NDArray[np.uint32]) -> int:
        """The number of next documents that come nearest to the quota; the earlier one of two such stops."""
        sums = np.cumsum(lengths, dtype=np.int64) + self.given
        above = int(np.searchsorted(sums, self.quota))  # the first stop that reaches the quota
        if above == len(sums):
            return above
        below_tokens = int(sums[above - 1]) if above else self.given
        goes_on = int(sums[above]) - self.quota < self.quota - below_tokens or below_tokens < self.least
        return max(int(self.given == 0), above + (goes_on and int(sums[above]) <= self.most))


def shuffled(
    source: str, lengths: SourceLengths, seed: int, scratch: Scratch, first_epoch: int = 0
) -> Iterator[Rows]:
    """Yield the shuffled documents, epoch after epoch, each without those consumed more often before."""
    for epoch in range(first_epoch, _MOST_EPOCHS):
        key = permutation_key("mix", seed, source, epoch)
        blocks = (documents(block, epoch) for block in lengths.blocks(source))
        yield from sorted_rows((with_fields(rows, key=document_keys(rows, key)) for rows in blocks), scratch)


def documents(block: LengthBlock, epoch: int | None = None) -> Rows:
    """A block's documents that have tokens, with how often each was consumed; their keys are not set.

    With an epoch, those that were consumed at most that often, to be drawn in it.
    """
    chosen = block.lengths > 0
    kept = np.flatnonzero(chosen if epoch is None else chosen & (block.consumed <= epoch))
    rows = np.empty(len(kept), dtype=DOCUMENT)
    rows["shard"], rows["document"] = block.shard, kept + block.first
    rows["num_tokens"] = block.lengths[kept]
    rows["epoch"] = block.consumed[kept] if epoch is None else epoch
    return rows


def document_keys(rows: Rows, key: Key) -> NDArray[np.uint64]:
    """Hash documents, uint64 [n]; different documents of one source have different hashes."""
    words = (rows["shard"].astype(np.uint64) << np.uint64(32)) | rows["document"]
    return scrambled(scrambled(words, key[0]), key[1])


def with_fields(rows: Rows, dtype: "np.dtype[np.void] | None" = None, **fields: object) -> Rows:
    """The rows with other values in some fields; as new rows of a dtype, if one is given."""
    if dtype is not None:
        narrow, rows = rows, np.empty(len(rows), dtype=dtype)
        for name in set(dtype.names or ()) & set(narrow.dtype.names or ()) - fields.keys():
            rows[name] = narrow[name]
    for name, values in fields.items():
        rows[name] = values
    return rows


def check_epochs(source: str, number: int) -> None:
    """Reject more epochs of a source than a plan can store."""
    if number > _MOST_EPOCHS:
        raise MixingError(
            f"mix: source '{source}' would be drawn {number} times; at most {_MOST_EPOCHS} are possible, "
            "so give it a smaller weight or more text"
        )
