"""Encode pre-tokens: each is looked up in a cache, and segmented only if it is not there.

Pre-tokens with unknown characters are not remembered, since the bytes that they lose are counted. Other
segmentations than the best are ranked or drawn.
"""

import math
from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, Int64In, UInt32, UInt64In
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    SEGMENT,
    EncodingCache,
    Fetched,
    fetch_ahead,
    recall,
    remember,
)
from tokmill.tokenizer.kernels.draws import STEP, first_state, unit_of
from tokmill.tokenizer.unigram.kernels.expectation import add_logs
from tokmill.tokenizer.unigram.kernels.lattice import (
    Found,
    Paths,
    Pieces,
    find_best_path,
    find_steps,
    next_character,
    write_ends,
    write_path,
)
from tokmill.tokenizer.unigram.kernels.rounded import Room, encode_rounded


class Ranked(NamedTuple):
    """The best paths to each byte of a text; row b * k + r is the one of rank r to byte b.

    Attributes:
        scores: shape ((num_bytes + 1) * k,).
        starts: the same shape, where the last piece begins.
        ranks: the rank there of the path that goes on.
        ids: the last piece.
    """

    scores: Float64
    starts: Int32
    ranks: Int32
    ids: Int32


@kernel(inline=True)
def insert_path(
    ranked: Ranked, counts: Int64, k: int, to: int, score: float, start: int, rank: int, token: int
) -> None:
    """Put a path among the best ones to a place, behind those that are as good."""
    row = counts[to]
    if row == k:
        if score <= ranked.scores[to * k + k - 1]:
            return
        row -= 1
    else:
        counts[to] += 1
    while row > 0 and ranked.scores[to * k + row - 1] < score:
        here = to * k + row
        ranked.scores[here], ranked.starts[here] = ranked.scores[here - 1], ranked.starts[here - 1]
        ranked.ranks[here], ranked.ids[here] = ranked.ranks[here - 1], ranked.ids[here - 1]
        row -= 1
    here = to * k + row
    ranked.scores[here], ranked.starts[here] = score, start
    ranked.ranks[here], ranked.ids[here] = rank, token


@kernel
def rank_paths(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    pieces: Pieces,
    found: Found,
    k: int,
    ranked: Ranked,
    counts: Int64,
) -> None:
    """Find the `k` best paths to each place of a text."""
    counts[0], ranked.scores[0] = 1, 0.0
    for pretoken in range(starts.shape[0]):
        at, end = starts[pretoken], ends[pretoken]
        while at < end:
            after = next_character(data, at, end)
            for i in range(find_steps(data, at, end, after, pieces, found)):
                token, to = found.ids[i], found.ends[i]
                for rank in range(counts[at]):
                    score = ranked.scores[at * k + rank] + pieces.scores[token]
                    insert_path(ranked, counts, k, to, score, at, rank, token)
            at = after


@kernel
def sample_paths(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    pieces: Pieces,
    found: Found,
    behind: Float64,
    alpha: float,
    seed: UInt64In,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Draw a segmentation of every pre-token: with its own probability to the power of alpha, scaled.

    The sums of what may follow each place are computed from the end, and pieces are drawn from the beginning.
    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.
    """
    number = 0
    for document in range(offsets.shape[0] - 1):
        for pretoken in range(offsets[document], offsets[document + 1]):
            start, end = starts[pretoken], ends[pretoken]
            behind[end - start] = 0.0
            for at in range(end - 1, start - 1, -1):
                if at > start and data[at] & 0xC0 == 0x80:
                    continue
                total = -math.inf
                for i in range(find_steps(data, at, end, next_character(data, at, end), pieces, found)):
                    rest = behind[found.ends[i] - start]
                    total = add_logs(total, alpha * pieces.scores[found.ids[i]] + rest)
                behind[at - start] = total
            state = first_state(seed[0], data, start, end, pretoken - offsets[document])
            at, last = start, -1
            while at < end:
                state += STEP
                left = unit_of(state)
                count, chosen = find_steps(data, at, end, next_character(data, at, end), pieces, found), 0
                while chosen < count - 1:
                    rest = behind[found.ends[chosen] - start] - behind[at - start]
                    left -= math.exp(alpha * pieces.scores[found.ids[chosen]] + rest)
                    if left < 0:
                        break
                    chosen += 1
                token = int(found.ids[chosen])
                if token == pieces.unknown and pieces.byte_ids.shape[0] > 0:
                    for place in range(at, found.ends[chosen]):
                        out[number] = np.uint32(pieces.byte_ids[data[place]])
                        number += 1
                elif token != pieces.unknown or last != pieces.unknown:
                    out[number] = np.uint32(token)
                    number += 1
                last, at = token, found.ends[chosen]
        out_offsets[document + 1] = number
    return number


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        paths: see `lattice`.
        fetched: where a block of pre-tokens is in the cache.
        room: for pre-tokens that are cut into parts.
    """

    cache: EncodingCache
    paths: Paths
    fetched: Fetched
    room: Room


@kernel
def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    pieces: Pieces,
    memory: Memory,
    out: UInt32,
    out_offsets: Int64,
    unknown_bytes: Int64,
    progress: Int64,
    until: int,
) -> int:
    """Encode the pre-tokens of segments, from the place in `progress` (zeros at first) on.

    `out` has room for one id per byte and eight more; a block that begins at `until` or later is not begun.
    Returns DONE; PAUSED at `until`; or the length of a pre-token that is longer than the scratch. A further
    call, with another `until` or more scratch, goes on from there.
    """
    segment, k, position = progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS]
    block, fetched, lacking = k, k, DONE
    while segment < kinds.shape[0] and lacking == DONE:
        last = offsets[segment + 1]
        if kinds[segment] >= 0:
            out[position] = np.uint32(kinds[segment])
            position += 1
            if kinds[segment] == pieces.unknown and k < last:
                unknown_bytes[segment] = ends[last - 1] - starts[k]
            k = last
        while k < last:
            if k >= fetched:
                block, fetched = k, min(k + BLOCK, starts.shape[0])
                longest = fetch_ahead(data, starts, ends, block, fetched, memory.cache, memory.fetched)
                if longest >= memory.paths.back.shape[0]:
                    lacking = longest
                    break
                if starts[k] >= until:
                    lacking = PAUSED
                    break
            start, length = starts[k], ends[k] - starts[k]
            if pieces.single:
                count, lost = encode_rounded(
                    data, start, ends[k], pieces, memory.cache, memory.paths, memory.room, out, position
                )
                unknown_bytes[segment] += lost
            else:
                count = recall(data, start, length, k - block, memory.cache, memory.fetched, out, position)
                if count == 0:
                    find_best_path(data, start, ends[k], pieces, memory.paths, 0.0)
                    count, lost = write_path(data, start, length, pieces, memory.paths, out, position)
                    unknown_bytes[segment] += lost
                    if lost == 0:
                        remember(
                            data, start, length, k - block, memory.cache, memory.fetched, out, position, count
                        )
            position += count
            k += 1
        if lacking == DONE:
            segment += 1
            out_offsets[segment] = position
    progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS] = segment, k, position
    return lacking


@kernel
def locate_pieces(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    pieces: Pieces,
    paths: Paths,
    ids: UInt32,
    out: Int64,
) -> int:
    """Write where each token of some segments ends; return their number."""
    number = 0
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            out[number] = bounds[segment + 1]
            number += 1
            continue
        for k in range(offsets[segment], offsets[segment + 1]):
            length = ends[k] - starts[k]
            find_best_path(data, starts[k], ends[k], pieces, paths, 0.0)
            count, _ = write_path(data, starts[k], length, pieces, paths, ids, number)
            write_ends(starts[k], length, pieces, paths, count, out, number)
            number += count
    return number
