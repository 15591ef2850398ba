"""From pre-tokens to ids, and back: the loops that families share, each with its kernel for one pre-token.

A pre-token is looked up in a cache, and encoded only if it is not there. One with unknown text is not
remembered, unless all of it is one token, since the bytes that it loses are counted. `first_gap` is the law
that tokens and unknown text have the bytes of a text.
"""

from typing import Any, NamedTuple

import numpy as np

from tokmill.tokenizer.jit import Kernel, kernel, specialized
from tokmill.tokenizer.jit.arrays import (
    Bytes,
    BytesIn,
    Int32In,
    Int64,
    Int64In,
    Int64Table,
    UInt32,
    UInt32In,
    UInt64In,
)
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    LONG,
    MIDDLE,
    EncodingCache,
    Fetched,
    empty_block,
    empty_cache,
    fetch_ahead,
    recall_middle,
    recall_short,
    remember,
)
from tokmill.tokenizer.kernels.words import first_state

SEGMENT, PRETOKEN, NUM_IDS = 0, 1, 2
"""Indices in `progress`: the next segment and pre-token, and the number of ids."""

DONE, PAUSED = 0, -1
"""Why encoding returned, unless it lacked scratch."""

NOWHERE = np.empty((0, 2), np.int64)
"""For spans that are not wanted."""


class Memory(NamedTuple):
    """What one thread remembers, and where it writes places.

    Attributes:
        cache: see `kernels.cache`.
        remembers: whether it has whole pre-tokens.
        fetched: where a block of pre-tokens is in the cache.
        spans: shape (room for ids, 2), for the bytes at which each token begins and ends; or shape (0, 2).
    """

    cache: EncodingCache
    remembers: bool
    fetched: Fetched
    spans: Int64Table


def make_memory(cache: EncodingCache | None = None, *, remembers: bool = True) -> Memory:
    """Make a memory with a cache, or an empty one."""
    return Memory(empty_cache(16, 14, 18) if cache is None else cache, remembers, empty_block(), NOWHERE)


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, model: Any, scratch: Any, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Write the ids of a pre-token, and their spans if wanted; return the ids' and unknown bytes' numbers.

    A family's own stands in for this one: see `encoding_kernel`.
    """
    raise NotImplementedError


@kernel(inline=True)
def lose_nothing(out: UInt32, at: int, count: int, unknown: int, length: int) -> int:
    """Return how many bytes of a remembered string are unknown: none, since no others are remembered."""
    return np.int64(0)


@kernel(inline=True)
def lose_all(out: UInt32, at: int, count: int, unknown: int, length: int) -> int:
    """Do the same where unknown strings are remembered, too, each as one unknown token."""
    return length if count == 1 and out[at] == unknown else np.int64(0)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    model: Any,
    scratch: Any,
    spans: Int64Table,
    strength: float,
    state: np.uint64,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Do the same for a segmentation that is drawn by random numbers from a state on."""
    raise NotImplementedError


@kernel(inline=True)
def put_span(spans: Int64Table, at: int, start: int, end: int) -> None:
    """Write where a token begins and ends, if that is wanted."""
    if spans.shape[0] > 0:
        spans[at, 0], spans[at, 1] = start, end


@kernel(inline=True)
def encode_other(
    data: BytesIn,
    start: int,
    end: int,
    row: int,
    model: Any,
    scratch: Any,
    memory: Memory,
    out: UInt32,
    at: int,
    unknown: int,
) -> tuple[int, int]:
    """Write the ids of a pre-token that the cache of short ones has not.

    Returns their number, and how many more bytes are unknown than their own show.
    """
    place = memory.fetched.places[row]
    if place <= MIDDLE:
        count = recall_middle(memory.cache, MIDDLE - place, data, start, end - start, out, at)
        if count > 0:
            return count, np.int64(0)
    count, lost = encode_one(data, start, end, model, scratch, memory, out, at)
    lost -= lose_nothing(out, at, count, unknown, end - start)
    if lost == 0:
        remember(data, start, end - start, row, memory.cache, memory.fetched, out, at, count)
    return count, lost


def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    edges: Int64In,
    unknown: int,
    model: Any,
    scratch: Any,
    memory: Memory,
    room: int,
    until: int,
    out: UInt32,
    out_offsets: Int64,
    unknown_bytes: Int64,
    progress: Int64,
) -> int:
    """Encode the pre-tokens of segments, from the place in `progress` (zeros at first) on.

    `out` has room for eight ids more than there may be; a block that begins at `until` or later is not begun.
    Returns DONE; PAUSED at `until`; or the length of a pre-token that is longer than the scratch has `room`
    for. A further call, with another `until` or more scratch, goes on from there.
    """
    segment, k, position = progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS]
    block, fetched, lacking = k, k, np.int64(DONE)
    while segment < kinds.shape[0] and lacking == DONE:
        last = offsets[segment + 1]
        if kinds[segment] >= 0:
            out[position] = np.uint32(kinds[segment])
            put_span(memory.spans, position, edges[segment], edges[segment + 1])
            position += 1
            if kinds[segment] == unknown:
                unknown_bytes[segment] = edges[segment + 1] - edges[segment]
            k = last
        while k < last:
            if k >= fetched:
                block, fetched = k, min(k + BLOCK, starts.shape[0])
                longest = fetch_ahead(data, starts, ends, block, fetched, memory.cache, memory.fetched)
                if not memory.remembers:
                    memory.fetched.places[:] = LONG
                if longest > room:
                    lacking = longest
                    break
                if starts[k] >= until:
                    lacking = np.int64(PAUSED)
                    break
            stop = min(last, fetched)
            for row in range(k - block, stop - block):
                place, count = memory.fetched.places[np.uint64(row)], np.int64(0)
                if place >= 0:
                    low, high = memory.fetched.lows[np.uint64(row)], memory.fetched.highs[np.uint64(row)]
                    count = recall_short(memory.cache, place, low, high, out, position)
                start, end = starts[block + row], ends[block + row]
                if count == 0:
                    count, lost = encode_other(
                        data, start, end, row, model, scratch, memory, out, position, unknown
                    )
                    unknown_bytes[segment] += lost
                unknown_bytes[segment] += lose_nothing(out, position, count, unknown, end - start)
                position += count
            k = stop
        if lacking == DONE:
            segment += 1
            out_offsets[segment] = position
    progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS] = segment, k, position
    return lacking


def sample_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    model: Any,
    scratch: Any,
    nowhere: Int64Table,
    strength: float,
    seed: UInt64In,
    out: UInt32,
    out_offsets: Int64,
    unknown_bytes: Int64,
) -> int:
    """Encode every pre-token by a segmentation that is drawn; return the number of ids.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.
    """
    number = np.int64(0)
    for document in range(offsets.shape[0] - 1):
        for k in range(offsets[document], offsets[document + 1]):
            state = first_state(seed[0], data, starts[k], ends[k], k - offsets[document])
            count, lost = draw_one(
                data, starts[k], ends[k], model, scratch, nowhere, strength, state, out, number
            )
            number += count
            unknown_bytes[document] += lost
        out_offsets[document + 1] = number
    return number


def encoding_kernel(
    encode: Kernel[..., tuple[int, int]], model: Any, scratch: Any, lose: Kernel[..., int] = lose_nothing
) -> Kernel[..., int]:
    """Make a family's `encode_pretokens` of its `encode_one`, for its types of models and scratch."""
    types = {"model": model, "scratch": scratch}
    other = specialized(encode_other.py_func, types, encode_one=encode, lose_nothing=lose, inline=True)
    return specialized(encode_pretokens, types, encode_other=other, lose_nothing=lose)


def sampling_kernel(draw: Kernel[..., tuple[int, int]], model: Any, scratch: Any) -> Kernel[..., int]:
    """Make a family's `sample_pretokens` of its `draw_one`."""
    return specialized(sample_pretokens, {"model": model, "scratch": scratch}, draw_one=draw)


@kernel
def first_gap(ids: UInt32In, ends: Int64In, bounds: Int64In, unknown_bytes: Int64In, lengths: BytesIn) -> int:
    """Find the first segment whose tokens and unknown text are not as long as its text; else their number."""
    segments, vocab_size = ends.shape[0] - 1, np.uint64(lengths.shape[0])
    for segment in range(segments):
        first, after = ends[segment], ends[segment + 1]
        if first < 0 or after < first or after > ids.shape[0] or unknown_bytes[segment] < 0:
            return segment
        total = unknown_bytes[segment]
        for k in range(np.uint64(first), np.uint64(after)):
            token = np.uint64(ids[k])
            if token >= vocab_size:  # always predicted, and it keeps the compiler from slower vector code
                return segment
            total += lengths[token]
        if total != bounds[segment + 1] - bounds[segment]:
            return segment
    return segments


first_gap_of_long_tokens: Kernel[..., int] = specialized(first_gap.py_func, {"lengths": Int32In})
"""The same for lengths that do not fit in bytes."""


@kernel
def gather_tokens(ids: Int64In, token_data: BytesIn, token_offsets: Int64In, out: Bytes) -> None:
    """Write the bytes of each token, one after the other, into `out`, which has exactly their size."""
    position = 0
    for i in range(ids.shape[0]):
        for k in range(token_offsets[ids[i]], token_offsets[ids[i] + 1]):
            out[position] = token_data[k]
            position += 1
