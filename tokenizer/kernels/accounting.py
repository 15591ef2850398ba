"""Bytes that tokens stand for, added up."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, Int64In, UInt32In


@kernel
def add_up(ids: UInt32In, ends: Int64In, lengths: Int64In, sums: Int64) -> None:
    """Add up the lengths of each segment's tokens.

    Args:
        ids: shape (num_ids,), below the length of `lengths`.
        ends: shape (num_segments + 1,), ascending; segment s has the ids from `ends[s]` to `ends[s + 1]`.
        lengths: shape (vocab_size,), bytes of each token.
        sums: shape (num_segments,); written.
    """
    for segment in range(ends.shape[0] - 1):
        total = np.int64(0)
        for i in range(ends[segment], ends[segment + 1]):
            total += lengths[np.uint64(ids[np.uint64(i)])]
        sums[segment] = total
