"""Order the documents of a source from the easiest to the hardest.

The model. A measure gives every document a number: its length, or a score (`formats.encoded`). Larger is
harder; a negative weight reverses that. A single measure orders the documents by its numbers. Several
measures are combined by rank: a document's rank in a measure is the fraction of the source's documents with a
smaller number, and its difficulty is the weighted mean of its ranks.

Laws. Only the order of numbers matters, not their scale. The order of equal difficulties depends on the seed.
A document without a number (NaN) is the hardest in that measure. Memory is bounded: ranks are computed by
sorting on disk.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.mixing.lengths import LengthBlock, SourceLengths
from tokmill.tasks.mixing.permutation import permutation_key
from tokmill.tasks.mixing.shuffled import DOCUMENT, document_keys
from tokmill.tasks.mixing.sorting import Rows, Scratch, regrouped, sorted_rows

GRADED = np.dtype([*DOCUMENT.descr, ("consumed", "<u2")])
_RANKED = np.dtype([("key", "<u8"), ("rank", "<f4")])
_NUMBERED = np.dtype([("key", "<u8"), ("number", "<u8")])
Scores = Callable[[], NDArray[np.float32]]


@dataclass(frozen=True)
class Measure:
    """One number per document.

    Attributes:
        name: name of the measure, for messages.
        weight: weight of the rank; not 0, and negative if larger is easier.
        scores: functions that open each shard's numbers, float32 [d]; None for the documents' lengths.
        two_sided: the extremes are harder than the middle: a rank r counts as |2r - 1|.
    """

    name: str
    weight: float
    scores: Sequence[Scores] | None = None
    two_sided: bool = False


@dataclass(frozen=True)
class Difficulty:
    """The measures by which one source's documents are ordered."""

    source: str
    lengths: SourceLengths
    measures: Sequence[Measure]
    seed: int
    scratch: Scratch

    def ascending(self) -> Iterator[Rows]:
        """Yield the non-empty documents from the easiest to the hardest, with the dtype `GRADED`."""
        return sorted_rows(self._keyed(), self.scratch)

    def _keyed(self) -> Iterator[Rows]:
        """The documents in stored order; the key is the difficulty followed by a random number."""
        key = permutation_key("tie", self.seed, self.source)
        for block, values in zip(self.lengths.blocks(self.source), self._difficulties(), strict=True):
            kept = np.flatnonzero(block.lengths)
            rows = np.empty(len(kept), dtype=GRADED)
            rows["consumed"] = block.consumed[kept]
            rows["shard"], rows["document"] = block.shard, kept + block.first
            rows["num_tokens"] = block.lengths[kept]
            lots = document_keys(rows, key) >> np.uint64(32)
            rows["key"] = sortable(values[kept]) << np.uint64(32) | lots
            yield rows

    def _difficulties(self) -> Iterator[NDArray[np.float32]]:
        """One number per document, block by block."""
        if len(self.measures) == 1 and not self.measures[0].two_sided:
            return self._values(self.measures[0])
        total = sum(abs(measure.weight) for measure in self.measures)
        parts = [self._weighted(measure, measure.weight / total) for measure in self.measures]
        return (np.sum(blocks, axis=0, dtype=np.float32) for blocks in zip(*parts, strict=True))

    def _weighted(self, measure: Measure, weight: float) -> Iterator[NDArray[np.float32]]:
        for ranks in self._ranks(measure):
            yield (
                np.abs(2 * ranks - 1) * np.float32(weight)
                if measure.two_sided
                else ranks * np.float32(abs(weight))
            )

    def _ranks(self, measure: Measure) -> Iterator[NDArray[np.float32]]:
        """Each document's rank in [0, 1), in stored order."""
        by_value = sorted_rows(_numbered(self._values(measure)), self.scratch)
        by_document = sorted_rows(_ranked(by_value, self.lengths.num_documents), self.scratch)
        sizes = (len(block.lengths) for block in self.lengths.blocks(self.source))
        return (rows["rank"] for rows in regrouped(by_document, sizes))

    def _values(self, measure: Measure) -> Iterator[NDArray[np.float32]]:
        """The measure's numbers, negated if larger is easier."""
        turned = measure.weight < 0 and not measure.two_sided
        for block in self.lengths.blocks(self.source):
            values = self._of_block(measure, block)
            yield -values if turned else values

    def _of_block(self, measure: Measure, block: LengthBlock) -> NDArray[np.float32]:
        if measure.scores is None:
            return block.lengths.astype(np.float32)
        scores = measure.scores[block.shard]()
        found = scores[block.first : block.first + len(block.lengths)]
        if len(scores) != self.lengths.shards[block.shard].num_documents:
            raise StoreError(
                f"mix: measure '{measure.name}' has {len(scores)} numbers for shard {block.shard} of "
                f"'{self.source}', which has {self.lengths.shards[block.shard].num_documents} documents; "
                "score the encoding that is mixed"
            )
        return np.asarray(found, dtype=np.float32)


def sortable(values: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Integers of 32 bits with the order of the values; -0 equals 0, NaN is the largest."""
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)
    negative = bits >> np.uint64(31) == 1
    ascending = np.where(negative, np.uint64(0xFFFFFFFF) - bits, bits + np.uint64(0x80000000))
    return np.where(np.isnan(values), np.uint64(0xFFFFFFFF), ascending)


def _numbered(blocks: Iterator[NDArray[np.float32]]) -> Iterator[Rows]:
    number = 0
    for values in blocks:
        rows = np.empty(len(values), dtype=_NUMBERED)
        rows["key"] = sortable(values)
        rows["number"] = np.arange(number, number + len(values), dtype=np.uint64)
        number += len(values)
        yield rows


def _ranked(ascending: Iterator[Rows], size: int) -> Iterator[Rows]:
    """The ranks of documents sorted by value; equal values get the lowest of their ranks."""
    before, last_value, last_rank = 0, None, 0
    for rows in ascending:
        values = rows["key"]
        new = np.ones(len(values), dtype=bool)
        new[1:] = values[1:] != values[:-1]
        new[0] = last_value is None or values[0] != last_value
        places = np.arange(before, before + len(values))
        firsts = np.maximum.accumulate(np.where(new, places, last_rank))
        ranked = np.empty(len(values), dtype=_RANKED)
        ranked["key"], ranked["rank"] = rows["number"], firsts / size
        before, last_value, last_rank = before + len(values), values[-1], int(firsts[-1])
        yield ranked
