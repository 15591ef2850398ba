"""Count pre-tokens in the order in which they first occur, for tie rules that depend on it.

Laws: counts are those of `counting`; the order is that of the texts, however they were cut into batches or
    divided among threads. A thread counts each part by itself, and the parts are added up in their order.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import Texts
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.counting import Buffers, Cuts, Part, PretokenCounter, counted_as, in_threads, parts_of
from tokmill.tokenizer.kernels.counting import count_and_note, read_counts
from tokmill.tokenizer.kernels.sorting import gather_strings
from tokmill.tokenizer.pipeline.model import TextNormalizer


class FirstSeenCounter(PretokenCounter):
    """Counts pre-tokens batch by batch; `take(in_order=False)` has them in the order of first places."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[Buffers] = []

    def take(self, *, in_order: bool = True) -> PretokenCounts:
        """Return the counts so far, and start again; without `in_order` in the order of first places."""
        found = super().take(in_order=in_order)
        self._seen = []
        return found

    def _count(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.uint64],
        first: int,
    ) -> int:
        new, noted = np.empty(starts.shape[0] - first, np.int64), np.zeros(1, np.int64)
        done = count_and_note(data, starts, ends, weights, first, self._tables, new, noted)
        if noted[0]:
            self._seen.append(_gathered(data, starts, ends, new[: noted[0]]))
        return done

    def _listed(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]:
        data = np.concatenate([np.zeros(0, np.uint8), *(data for data, _ in self._seen)])
        lengths = [np.zeros(1, np.int64), *(np.diff(offsets) for _, offsets in self._seen)]
        offsets, counts = np.cumsum(np.concatenate(lengths)), np.empty(len(self), np.uint64)
        read_counts(data, offsets, self._tables, counts)
        return data, offsets, counts


def _gathered(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], chosen: NDArray[np.int64]
) -> Buffers:
    """Lay some of the strings `data[starts[k]:ends[k]]` one after the other."""
    bounds = np.stack([starts[chosen], ends[chosen]], axis=1)
    out = np.empty(int((bounds[:, 1] - bounds[:, 0]).sum()), np.uint8)
    offsets = np.empty(chosen.shape[0] + 1, np.int64)
    gather_strings(data, bounds.ravel(), np.arange(0, bounds.size, 2), out, offsets)
    return out, offsets


def count_texts_in_order(
    texts: Texts,
    splitter: Cuts,
    specials: Sequence[str] = (),
    normalizer: str | TextNormalizer | None = None,
    *,
    num_threads: int = 1,
) -> FirstSeenCounter:
    """Count the pre-tokens of texts, and remember the order in which they first occur."""
    return count_parts_in_order(parts_of(texts), counted_as(splitter, specials, normalizer), num_threads)


def count_parts_in_order(
    parts: Iterable[Part], count: Callable[[PretokenCounter, Part], None], num_threads: int
) -> FirstSeenCounter:
    """Count parts by threads, each part by itself, and add the counts up in the order of the parts."""
    if num_threads < 1:
        raise TokenizerError(f"count: num_threads={num_threads} must be at least 1; use e.g. 1")
    total = FirstSeenCounter()
    if num_threads == 1:
        for part in parts:
            count(total, part)
        return total

    def counted(part: Part) -> PretokenCounts:
        counter = FirstSeenCounter()
        count(counter, part)
        return counter.take(in_order=False)

    for found in in_threads(counted, parts, num_threads):
        total.add(found.data, found.offsets[:-1], found.offsets[1:], found.counts)
    return total
