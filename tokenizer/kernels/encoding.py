"""From pre-tokens to ids: a pre-token is looked up in a cache, and encoded only if it is not there.

Look-ups wait for memory, so a block of pre-tokens has its places in the cache fetched ahead, all at once.
"""

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int64, Int64In, UInt32
from tokenizer.kernels.encoding_cache import (
    MIDDLE_IDS,
    SHORT_IDS,
    middle_place,
    recall_middle,
    recall_short,
    remember_middle,
    remember_short,
    short_place,
)
from tokenizer.kernels.intrinsics import prefetch
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.model import Memory, Model
from tokenizer.kernels.pieces import encode_anew
from tokenizer.kernels.words import MAX_MIDDLE, MAX_SHORT, load_short

BLOCK = 256
"""Pre-tokens whose places are fetched ahead."""


@kernel(inline=True)
def fetch_ahead(
    data: BytesIn, starts: Int64In, ends: Int64In, first: int, after: int, memory: Memory
) -> None:
    """Find the places in the cache of the pre-tokens from `first` to `after`, and ask for them."""
    for k in range(first, after):
        start = starts[np.uint64(k)]
        length = ends[np.uint64(k)] - start
        if length <= MAX_SHORT:
            low, high = load_short(data, start, length)
            place = short_place(memory.cache, low, high)
            prefetch(memory.cache.short, place)
        elif length <= MAX_MIDDLE:
            place = middle_place(memory.cache, data, start, length)
            prefetch(memory.cache.middle, place)
        else:
            place = np.int64(0)
        memory.places[np.uint64(k - first)] = place


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, place: int, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode one pre-token whose place in the cache is known; return how many ids were written."""
    length = end - start
    low, high, count = np.uint64(0), np.uint64(0), np.int64(0)
    if length <= MAX_SHORT:
        low, high = load_short(data, start, length)
        count = recall_short(memory.cache, place, low, high, out, at)
    elif length <= MAX_MIDDLE:
        count = recall_middle(memory.cache, place, data, start, length, out, at)
    if count == 0:
        count = encode_anew(data, start, end, model, memory, out, at)
        if length <= MAX_SHORT and count <= SHORT_IDS:
            remember_short(memory.cache, place, low, high, out, at, count)
        elif MAX_SHORT < length <= MAX_MIDDLE and count <= MIDDLE_IDS:
            remember_middle(memory.cache, place, data, start, length, out, at, count)
    return count


@kernel
def count_bytes(starts: Int64In, ends: Int64In) -> tuple[int, int]:
    """Return how many bytes pre-tokens have, and how many the longest has."""
    total, longest = np.int64(0), np.int64(0)
    for k in range(starts.shape[0]):
        total += ends[k] - starts[k]
        longest = max(longest, ends[k] - starts[k])
    return total, longest


@kernel
def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    model: Model,
    memory: Memory,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode the pre-tokens of segments.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_segments + 1,), the pre-tokens of each segment.
        kinds: shape (num_segments,), -1 for text, or the id that stands for the whole segment.
        model: the vocabulary.
        memory: this thread's, with scratch for the longest pre-token.
        out: room for one id a byte and eight more; receives the ids.
        out_offsets: shape (num_segments + 1,); receives where each segment's ids begin and end.

    Returns:
        The number of ids.
    """
    position, fetched, block = np.int64(0), np.int64(0), np.int64(0)
    out_offsets[0] = position
    for segment in range(kinds.shape[0]):
        k, last = offsets[segment], offsets[segment + 1]
        if kinds[segment] >= 0:
            out[position] = kinds[segment]
            position += 1
            k = last
        while k < last:
            if k >= fetched:
                block, fetched = k, min(k + BLOCK, starts.shape[0])
                fetch_ahead(data, starts, ends, block, fetched, memory)
            for i in range(k, min(last, fetched)):
                place, start, end = (
                    memory.places[np.uint64(i - block)],
                    starts[np.uint64(i)],
                    ends[np.uint64(i)],
                )
                position += encode_one(data, start, end, place, model, memory, out, position)
            k = min(last, fetched)
        out_offsets[segment + 1] = position
    return position
