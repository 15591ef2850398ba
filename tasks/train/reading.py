"""Read what a tokenizer is trained on: the counts of all sources, weighted and added up.

The sources' files are merged as they are read (`tasks.count.merging`), so that the sum alone is in memory,
once. Pre-tokens that occur less often than wanted, after balancing, are left out while they are read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.tasks.balance.stage import scaled_counts, scales_of
from tokmill.tasks.count.merging import merge_streams
from tokmill.tasks.formats.counts import Balance, Counts, count_chars

if TYPE_CHECKING:
    from tokmill.tokenizer import PretokenCounts

_ROWS_AT_A_TIME = 1 << 15


class TextSize(NamedTuple):
    """How many distinct pre-tokens there are, their bytes and their characters."""

    num_distinct: int
    num_bytes: int
    num_chars: int


class Weighted:
    """The weighted counts of a corpus, in sorted parts.

    Attributes:
        resolution: what the counts are times those of the balanced corpus.
        amounts: source → weighted bytes of its pre-tokens, once all parts were read.
    """

    def __init__(self, counts: Counts, balance: Balance, min_frequency: int = 1) -> None:
        """Read nothing yet.

        Args:
            counts: the counts of all sources.
            balance: the balance, which must have all of these sources.
            min_frequency: how often pre-tokens must occur in the balanced corpus.

        Raises:
            BalanceError: a source is not in the balance.
        """
        self._counts, self._scales = counts, scales_of(balance, counts.sources)
        self.resolution = balance.resolution
        self._least = min_frequency * balance.resolution if min_frequency > 1 else 0
        self.amounts: dict[str, int] = {}

    @property
    def is_plain(self) -> bool:
        """Whether the sum has all pre-tokens of a single source, so that its size is known."""
        return len(self._scales) == 1 and not self._least

    def parts(self) -> "Iterator[PretokenCounts]":
        """Yield the sum of the sources; those with the factor 0 are skipped.

        Raises:
            BalanceError: a count exceeds 64 bits.
        """
        self.amounts = dict.fromkeys(self._counts.sources, 0)
        for part in merge_streams([self._of(source) for source, scale in self._scales.items() if scale]):
            yield self._frequent(part) if self._least else part

    def size(self) -> TextSize:
        """Read all parts, and return how large they are together."""
        size = TextSize(0, 0, 0)
        for part in self.parts():
            of_part = (len(part), part.data.shape[0], count_chars(part.data))
            size = TextSize(*(so_far + more for so_far, more in zip(size, of_part, strict=True)))
        return size

    def read(self, size: TextSize) -> "PretokenCounts":
        """Return the sum of the sources, given its size or more."""
        from tokmill.tokenizer import PretokenCounts

        data, counts = np.empty(size.num_bytes, np.uint8), np.empty(size.num_distinct, np.uint64)
        offsets = np.zeros(size.num_distinct + 1, np.int64)
        row = at = 0
        for part in self.parts():
            end, stop = row + len(part), at + part.data.shape[0]
            data[at:stop], counts[row:end] = part.data, part.counts
            offsets[row + 1 : end + 1] = part.offsets[1:] + at
            row, at = end, stop
        return PretokenCounts(data[:at], offsets[: row + 1], counts[:row])

    def _of(self, source: str) -> "Iterator[PretokenCounts]":
        """Yield the weighted counts of a source."""
        from tokmill.tokenizer import PretokenCounts

        for part in self._counts.parts(source, _ROWS_AT_A_TIME):
            scaled = scaled_counts(part.counts, self._scales[source])
            self.amounts[source] += int((scaled * np.diff(part.offsets).astype(np.uint64)).sum())
            yield PretokenCounts(part.data, part.offsets, scaled)

    def _frequent(self, part: "PretokenCounts") -> "PretokenCounts":
        """Leave out what occurs too rarely."""
        from tokmill.tokenizer import PretokenCounts

        kept = part.counts >= np.uint64(self._least)
        lengths = np.diff(part.offsets)
        data = part.data[np.repeat(kept, lengths)]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[kept])])
        return PretokenCounts(data, offsets, part.counts[kept])


def largest_size(counts: Counts, balance: Balance | None, *, chars: bool = True) -> TextSize:
    """Return the size of the sum if no two sources have a pre-token in common.

    Characters are estimated, from a sample of the pre-tokens, or with `chars` false taken for none.
    """
    factors = dict.fromkeys(counts.sources, 1) if balance is None else balance.factors
    num_distinct = num_bytes = 0
    num_chars = 0.0
    for source in counts.sources:
        if factors.get(source):
            size = counts.size(source)
            num_distinct, num_bytes = num_distinct + size.num_distinct, num_bytes + size.num_bytes
            num_chars += size.num_bytes * counts.chars_per_byte(source) if chars else 0
    return TextSize(num_distinct, num_bytes, round(num_chars))
