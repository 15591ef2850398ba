"""Encode pre-tokens: each is looked up in a cache, and encoded only if it is not there.

`first_gap` checks the outcome: the tokens of a text must be as long as the text.
"""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.model import Memory, Model, WholeTokens, encode_anew, whole_token
from tokmill.tokenizer.jit import Kernel, kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32In, Int64, Int64In, UInt32, UInt32In, UInt64, UInt64In
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    DONE,
    MIDDLE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    SEGMENT,
    fetch_ahead,
    recall_middle,
    recall_short,
    remember_middle,
    remember_short,
)
from tokmill.tokenizer.kernels.draws import first_state, merge_with_dropout
from tokmill.tokenizer.kernels.merges import PairTables, Scratch, start_symbols, write_symbols


@kernel(inline=True)
def encode_other(
    data: BytesIn, start: int, end: int, block: int, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode a pre-token of a block that is not in the short cache; return the number of ids."""
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
    """Encode the pre-tokens of segments, from the place in `progress` (zeros at first) on.

    `out` has room for one id per byte and eight more; a block that begins at `until` or later is not begun.
    Returns DONE; PAUSED at `until`; or the length of a pre-token that is longer than the scratch. A further
    call, with another `until` or more scratch, goes on from there.
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
    """Find the first segment whose tokens are not as long as its text; the number of segments if all are."""
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


@kernel
def sample_merges(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    tables: PairTables,
    whole: WholeTokens,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode every pre-token with dropout; return the number of ids.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.
    """
    number = np.int64(0)
    for document in range(offsets.shape[0] - 1):
        for pretoken in range(offsets[document], offsets[document + 1]):
            start, end = starts[pretoken], ends[pretoken]
            if dropout == 0.0 and whole.size > 0:
                token = whole_token(data, start, end, whole)
                if token >= 0:
                    out[number] = token
                    number += 1
                    continue
            start_symbols(data, start, end - start, tables, scratch)
            state = first_state(seed[0], data, start, end, pretoken - offsets[document])
            merge_with_dropout(end - start, tables, scratch, left_out, dropout, state)
            number += write_symbols(end - start, scratch, out, number)
        out_offsets[document + 1] = number
    return number
