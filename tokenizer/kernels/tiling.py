"""Whether tokens tile the text that they were made from, for the price of an addition per token."""

import numpy as np

from tokmill.tokenizer.jit.arrays import BytesIn, Int32In, Int64In, UInt32In
from tokmill.tokenizer.jit.kernel import Kernel, kernel


@kernel
def first_gap(ids: UInt32In, ends: Int64In, bounds: Int64In, lengths: BytesIn) -> int:
    """Find the first segment whose tokens do not have as many bytes as its text.

    Args:
        ids: shape (num_tokens,).
        ends: shape (num_segments + 1,), where each segment's ids begin and end; of any value.
        bounds: shape (num_segments + 1,), where its text does.
        lengths: shape (vocab_size,), the bytes of each token; in single bytes if they fit, so that the table
            stays in the cache.

    Returns:
        The segment, or the number of segments if there is none.
    """
    segments, vocab_size = ends.shape[0] - 1, np.uint64(lengths.shape[0])
    for segment in range(segments):
        first, after = ends[segment], ends[segment + 1]
        if first < 0 or after < first or after > ids.shape[0]:
            return segment
        total = np.int64(0)
        for k in range(np.uint64(first), np.uint64(after)):
            token = np.uint64(ids[k])
            if token >= vocab_size:  # foreseen every time, and it keeps the compiler from slower vector code
                return segment
            total += lengths[token]
        if total != bounds[segment + 1] - bounds[segment]:
            return segment
    return segments


first_gap_of_long_tokens: Kernel[..., int] = first_gap.retyped({BytesIn: Int32In})
"""The same for lengths that do not fit in bytes."""
