"""Ids of strings that are tokens as a whole.

The vocabulary lies in the tables of `kernels.counting`, with id + 1 in the place of a count. A cache would
not be faster than these, whose memory is fetched ahead, and unknown strings are as cheap as known ones. The
loop is its own because the shared one, given this look-up, takes 3 % longer.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32
from tokmill.tokenizer.kernels.counting import BLOCK, CountTables, hash_block, weight_of
from tokmill.tokenizer.kernels.encoding import DONE, NUM_IDS, Memory, put_span


@kernel
def encode_strings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    edges: Int64In,
    unknown: int,
    model: int,
    tables: CountTables,
    memory: Memory,
    room: int,
    until: int,
    out: UInt32,
    out_offsets: Int64,
    unknown_bytes: Int64,
    progress: Int64,
) -> int:
    """Encode strings as `kernels.encoding.encode_pretokens` does pre-tokens, but all in one call."""
    number = np.int64(0)
    for segment in range(kinds.shape[0]):
        first, last, lost = offsets[segment], offsets[segment + 1], np.int64(0)
        if kinds[segment] >= 0:
            out[number] = np.uint32(kinds[segment])
            put_span(memory.spans, number, edges[segment], edges[segment + 1])
            lost = edges[segment + 1] - edges[segment] if kinds[segment] == unknown else lost
            number, first = number + 1, last
        for begin in range(first, last, BLOCK):
            end = min(begin + BLOCK, last)
            hash_block(data, starts, ends, begin, end, tables)
            for k in range(begin, end):
                token = np.int64(weight_of(data, starts[k], ends[k] - starts[k], k - begin, tables)) - 1
                lost += ends[k] - starts[k] if token < 0 else 0
                out[number] = np.uint32(token if token >= 0 else unknown)
                number += 1
        if memory.spans.shape[0] > 0:
            for k in range(first, last):
                put_span(memory.spans, number - last + k, starts[k], ends[k])
        unknown_bytes[segment], out_offsets[segment + 1] = lost, number
    progress[NUM_IDS] = number
    return DONE
