"""Count how often each id occurs, for ids of both stored widths."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import UInt16In, UInt32In, UInt64


@kernel
def count_narrow(ids: UInt16In, counts: UInt64) -> int:
    """Add one to `counts[id]` for every id; see `count_wide`."""
    for position in range(ids.shape[0]):
        if ids[position] >= counts.shape[0]:
            return position
        counts[ids[position]] += np.uint64(1)
    return ids.shape[0]


@kernel
def count_wide(ids: UInt32In, counts: UInt64) -> int:
    """Add one to `counts[id]` for every id.

    Args:
        ids: uint32 [n].
        counts: uint64 [vocab_size], changed.

    Returns:
        n, or the position of the first id that is not below vocab_size; later ids are not counted.
    """
    for position in range(ids.shape[0]):
        if ids[position] >= counts.shape[0]:
            return position
        counts[ids[position]] += np.uint64(1)
    return ids.shape[0]
