"""Which source gives the next document, so that every source keeps its share all along the way.

The rule is WF²Q (Bennett and Zhang 1996, "WF²Q: Worst-case Fair Weighted Fair Queueing"), which sends packets
of many queues over one line. In the ideal, fluid mixture every source has given the same fraction of its
tokens at any moment. A document's start and finish are the fractions of its source's tokens before and after
it. Of the documents that have started in the ideal mixture, the one that finishes first is next.

The bound that this gives: when P tokens are out, a source whose share is w has given at most w × P plus one
of its own documents, and at least w × P less the longest document of any source.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer.kernels import kernel
from tokenizer.kernels.arrays import Int64, Int64In, UInt16


class Progress(NamedTuple):
    """How far every source is; arrays of one value a source.

    Attributes:
        totals: int64, tokens that it gives in all.
        given: int64, tokens that it has given.
        upcoming: int64, place of its next document in the lengths.
        starts: float64, fraction of its tokens before the next document; infinite where there is none.
        finishes: float64, fraction of its tokens after the next document; infinite where there is none.
    """

    totals: Int64
    given: Int64
    upcoming: Int64
    starts: NDArray[np.float64]
    finishes: NDArray[np.float64]


def interleave(lengths: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Choose the source of every position of the mixture.

    Args:
        lengths: int64 [n], tokens of each document, ≥ 1; source after source, each in its own order.
        offsets: int64 [s + 1]; source i's documents are `lengths[offsets[i]:offsets[i + 1]]`; s ≤ 65,536.

    Returns:
        uint16 [n]: the source at each position; source i occurs as often as it has documents.

    Ties go to the lower source. Fractions are IEEE doubles of whole numbers, divided once: the same
    everywhere. O(n × s) time, O(s) memory besides the result.
    """
    sums = np.concatenate([[0], np.cumsum(lengths)])
    size = len(offsets) - 1
    progress = Progress(
        totals=np.diff(sums[offsets]),
        given=np.zeros(size, dtype=np.int64),
        upcoming=offsets[:-1].copy(),
        starts=np.empty(size),
        finishes=np.empty(size),
    )
    picks = np.empty(len(lengths), dtype=np.uint16)
    pick(lengths, offsets, progress, picks)
    return picks


@kernel
def pick(lengths: Int64In, offsets: Int64In, progress: Progress, picks: UInt16) -> None:
    """Fill `picks`, uint16 [n]; see `interleave`."""
    whole = 0
    for source in range(len(progress.totals)):
        whole += progress.totals[source]
        _look_ahead(lengths, offsets, progress, source)
    out = 0
    for position in range(len(lengths)):
        best = _next_source(progress, out / whole)
        picks[position] = best
        length = lengths[progress.upcoming[best]]
        out += length
        progress.given[best] += length
        progress.upcoming[best] += 1
        _look_ahead(lengths, offsets, progress, best)


@kernel(inline=True)
def _look_ahead(lengths: Int64In, offsets: Int64In, progress: Progress, source: int) -> None:
    """Note when the source's next document starts and finishes."""
    if progress.upcoming[source] < offsets[source + 1]:
        given = progress.given[source]
        total = progress.totals[source]
        progress.starts[source] = given / total
        progress.finishes[source] = (given + lengths[progress.upcoming[source]]) / total
    else:
        progress.starts[source] = np.inf
        progress.finishes[source] = np.inf


@kernel(inline=True)
def _next_source(progress: Progress, now: float) -> int:
    """Of the sources that have started the one that finishes first."""
    best = -1
    earliest = 0
    for source in range(len(progress.starts)):
        if progress.finishes[source] < progress.finishes[earliest]:
            earliest = source
        if progress.starts[source] <= now and (
            best < 0 or progress.finishes[source] < progress.finishes[best]
        ):
            best = source
    # Some source has always started; if a rounding error of one part in 2^53 hides it, the earliest will do.
    return best if best >= 0 else earliest
