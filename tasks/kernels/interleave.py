"""Which source gives the next document, so that every source keeps its share all along the way.

The rule is WF²Q (Bennett and Zhang 1996, "WF²Q: Worst-case Fair Weighted Fair Queueing"), which sends packets
of many queues over one line. In the ideal, fluid mixture every source has given the same fraction of its
tokens at any moment. A document's start and finish are the fractions of its source's tokens before and after
it. Of the documents that have started in the ideal mixture, the one that finishes first is next.

The bound that this gives: when P tokens are out, a source whose share is w has given at most w × P plus one
of its own documents, and at least w × P less the longest document of any source.
"""

import numpy as np
from numpy.typing import NDArray

from tokenizer.kernels import kernel
from tokenizer.kernels.arrays import Int64In, UInt16


@kernel
def interleave(lengths: Int64In, offsets: Int64In, picks: UInt16) -> None:
    """Choose the source of every position of the mixture.

    Args:
        lengths: int64 [n], tokens of each document, ≥ 1; source after source, each in its own order.
        offsets: int64 [s + 1]; source i's documents are `lengths[offsets[i]:offsets[i + 1]]`; s ≤ 65,536.
        picks: uint16 [n], written: the source at each position.

    Ties go to the lower source. Fractions are IEEE doubles of whole numbers, divided once: the same
    everywhere. O(n × s) time, O(s) memory.
    """
    num_sources = len(offsets) - 1
    totals = np.zeros(num_sources, dtype=np.int64)
    starts = np.full(num_sources, np.inf)
    finishes = np.full(num_sources, np.inf)
    for source in range(num_sources):
        for k in range(offsets[source], offsets[source + 1]):
            totals[source] += lengths[k]
        if totals[source] > 0:
            starts[source] = 0.0
            finishes[source] = lengths[offsets[source]] / totals[source]
    whole = totals.sum()
    given = np.zeros(num_sources, dtype=np.int64)
    upcoming = offsets[:-1].copy()
    out = 0
    for position in range(len(lengths)):
        best = _next_source(starts, finishes, out / whole)
        picks[position] = best
        out += lengths[upcoming[best]]
        given[best] += lengths[upcoming[best]]
        upcoming[best] += 1
        starts[best] = np.inf
        finishes[best] = np.inf
        if upcoming[best] < offsets[best + 1]:
            starts[best] = given[best] / totals[best]
            finishes[best] = (given[best] + lengths[upcoming[best]]) / totals[best]


@kernel(inline=True)
def _next_source(starts: NDArray[np.float64], finishes: NDArray[np.float64], now: float) -> int:
    """Of the sources that have started the one that finishes first."""
    best = -1
    earliest = 0
    for source in range(len(starts)):
        if finishes[source] < finishes[earliest]:
            earliest = source
        if starts[source] <= now and (best < 0 or finishes[source] < finishes[best]):
            best = source
    # Some source has always started; if a rounding error of one part in 2^53 hides it, the earliest will do.
    return best if best >= 0 else earliest
