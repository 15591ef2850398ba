"""Encode pre-tokens: each is looked up in a cache, and encoded only if it is not there.

`first_gap` checks the outcome: the tokens of a text must be as long as the text.
"""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.model import Memory, Model
from tokmill.tokenizer.byte_bpe.kernels.parts import encode_anew
from tokmill.tokenizer.jit import Kernel, kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32In, Int64, Int64In, UInt32, UInt32In
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    MIDDLE,
    fetch_ahead,
    recall_middle,
    recall_short,
    remember_middle,
    remember_short,
)

SEGMENT, PRETOKEN, NUM_IDS = 0, 1, 2
"""Indices in `progress`: the next segment, the next pre-token, and the number of ids so far."""

DONE, PAUSED = 0, -1
"""Why `encode_pretokens` returned, unless it lacked scratch."""


@kernel(inline=True)
def encode_other(
    data: BytesIn, start: int, end: int, block: int, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode a pre-token that is not in the short cache, given by its number in the block.

    Returns:
        The number of ids written.
    """
    place, count = memory.fetched.places[block], np.int64(0)
    if place <= MIDDLE:
        count = recall_middle(memory.cache, MIDDLE - place, data, start, end - start, out, at)
    if count == 0:
        count = encode_anew(data, start, end, model, memory, out, at)
        if place >= 0:
            remember_short(
                memory.cache, place, memory.fetched.lows[block], memory.fetched.highs[block], out, at, count
            )
        elif place <= MIDDLE:
            remember_middle(memory.cache, MIDDLE - place, data, start, end - start, out, at, count)
    return count


@kernel(inline=True)
def encode_fetched(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    block: int,
    first: int,
    stop: int,
    model: Model,
    memory: Memory,
    out: UInt32,
    position: int,
) -> int:
    """Encode the pre-tokens from `first` to `stop` of a fetched block; return where their ids end."""
    for i in range(first - block, stop - block):
        place, count = memory.fetched.places[np.uint64(i)], np.int64(0)
        if place >= 0:
            low, high = memory.fetched.lows[np.uint64(i)], memory.fetched.highs[np.uint64(i)]
            count = recall_short(memory.cache, place, low, high, out, position)
        if count == 0:
            start, end = starts[block + i], ends[block + i]
            count = encode_other(data, start, end, i, model, memory, out, position)
        position += count
    return position


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
    progress: Int64,
    until: int,
) -> int:
    """Encode the pre-tokens of segments, from the place in `progress` on.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_segments + 1,), the pre-tokens of each segment.
        kinds: shape (num_segments,), -1 for text, or the id that stands for the whole segment.
        model: the vocabulary.
        memory: of this thread.
        out: room for one id per byte and eight more; receives the ids.
        out_offsets: shape (num_segments + 1,), the first one 0; receives where each segment's ids end.
        progress: shape (3,), zeros at first; receives the state of the work. See SEGMENT, PRETOKEN, NUM_IDS.
        until: a place in the text; a block of pre-tokens that begins there or later is not begun.

    Returns:
        DONE; PAUSED if `until` was reached; or, if the next block holds a pre-token that is longer than the
        scratch, the length of its longest. In each case, a further call with the same arguments, except for
        `until` and more scratch, continues from there.
    """
    segment, k, position = progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS]
    block, fetched, lacking = k, k, np.int64(DONE)
    while segment < kinds.shape[0] and lacking == DONE:
        last = offsets[segment + 1]
        if kinds[segment] >= 0:
            out[position] = kinds[segment]
            position += 1
            k = last
        while k < last:
            if k >= fetched:
                block, fetched = k, min(k + BLOCK, starts.shape[0])
                longest = fetch_ahead(data, starts, ends, block, fetched, memory.cache, memory.fetched)
                if longest >= memory.greedy.given_up.shape[0]:
                    lacking = longest
                    break
                if starts[k] >= until:
                    lacking = np.int64(PAUSED)
                    break
            stop = min(last, fetched)
            position = encode_fetched(data, starts, ends, block, k, stop, model, memory, out, position)
            k = stop
        if lacking == DONE:
            segment += 1
            out_offsets[segment] = position
    progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS] = segment, k, position
    return lacking


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
            if token >= vocab_size:  # always predicted, and it keeps the compiler from slower vector code
                return segment
            total += lengths[token]
        if total != bounds[segment + 1] - bounds[segment]:
            return segment
    return segments


first_gap_of_long_tokens: Kernel[..., int] = first_gap.retyped({BytesIn: Int32In})
"""The same for lengths that do not fit in bytes."""
