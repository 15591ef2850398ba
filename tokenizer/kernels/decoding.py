"""From ids to bytes: where tokens lie, and how long they are together."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt32In


@kernel
def add_up(ids: UInt32In, ends: Int64In, lengths: Int64In, sums: Int64) -> None:
    """Add up the lengths of each segment's tokens."""
    for segment in range(ends.shape[0] - 1):
        total = np.int64(0)
        for i in range(ends[segment], ends[segment + 1]):
            total += lengths[np.uint64(ids[np.uint64(i)])]
        sums[segment] = total


@kernel
def gather_tokens(ids: Int64In, token_data: BytesIn, token_offsets: Int64In, out: Bytes) -> None:
    """Write the bytes of each token, one after the other, into `out`, which has exactly their size."""
    position = 0
    for i in range(ids.shape[0]):
        for k in range(token_offsets[ids[i]], token_offsets[ids[i] + 1]):
            out[position] = token_data[k]
            position += 1


@kernel
def locate_tokens(
    ids: Int64In, token_offsets: Int64In, bounds: Int64In, kinds: Int64In, starts: Int64, ends: Int64
) -> int:
    """Write where each token lies in the text that tokens tile, segment by segment; return their number."""
    token = 0
    for segment in range(kinds.shape[0]):
        position, end = bounds[segment], bounds[segment + 1]
        while position < end:
            starts[token] = position
            if kinds[segment] >= 0:
                position = end
            else:
                position += token_offsets[ids[token] + 1] - token_offsets[ids[token]]
            ends[token] = position
            token += 1
    return token
