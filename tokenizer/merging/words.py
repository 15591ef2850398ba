"""Counts of words, from those of the pre-tokens that contain them."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.counting import PretokenCounter
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.words import words_of


def count_words(counts: PretokenCounts, *, as_met: bool = False) -> PretokenCounts:
    """Count the words of pre-tokens; a word counts as often as the pre-tokens that contain it.

    Args:
        counts: of pre-tokens.
        as_met: whether the words are in the order in which they are first met; else they are sorted by bytes.
    """
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    words = words_of(counts.data, Pretokens(starts, ends, np.arange(starts.shape[0] + 1)))
    weights = np.repeat(counts.counts, np.diff(words.offsets))
    counted = weights > 0
    starts, ends = words.starts[counted], words.ends[counted]
    if as_met:
        return _as_met(counts.data.tobytes(), starts, ends, weights[counted])
    counter = PretokenCounter()
    counter.add(counts.data, starts, ends, weights[counted])
    return counter.take()


def _as_met(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], weights: NDArray[np.uint64]
) -> PretokenCounts:
    """Count words in the order in which they come."""
    found = dict[bytes, int]()
    for start, end, weight in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
        found[data[start:end]] = found.get(data[start:end], 0) + weight
    return PretokenCounts.from_dict(found, in_order=False)
