"""Segment pre-tokens: in the most probable way, in the best few, or in one that is drawn."""

import math
from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, Int64In, Int64Table, UInt32
from tokmill.tokenizer.kernels.characters import next_character
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel, sampling_kernel
from tokmill.tokenizer.kernels.words import STEP, unit_of
from tokmill.tokenizer.unigram.kernels.expectation import add_logs
from tokmill.tokenizer.unigram.kernels.lattice import (
    Found,
    Paths,
    Pieces,
    find_best_path,
    find_steps,
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


class Work(NamedTuple):
    """Working memory for one pre-token.

    Attributes:
        paths: see `lattice`.
        room: for pre-tokens that are cut into parts.
    """

    paths: Paths
    room: Room


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, pieces: Pieces, work: Work, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a pre-token; see `kernels.encoding`. Where sums are rounded, the cache is for its parts."""
    if pieces.single and memory.spans.shape[0] == 0:
        return encode_rounded(data, start, end, pieces, memory.cache, work.paths, work.room, out, at)
    find_best_path(data, start, end, pieces, work.paths, 0.0)
    return write_path(data, start, end - start, pieces, work.paths, memory.spans, out, at)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    work: Work,
    spans: Int64Table,
    alpha: float,
    state: np.uint64,
    out: UInt32,
    first: int,
) -> tuple[int, int]:
    """Draw a segmentation of a pre-token: with its own probability to the power of alpha, scaled.

    The sums of what may follow each place are computed from the end, and pieces are drawn from the beginning.
    """
    number, lost, found, behind = first, np.int64(0), work.paths.found, work.paths.best
    behind[end - start] = 0.0
    for at in range(end - 1, start - 1, -1):
        if at > start and data[at] & 0xC0 == 0x80:
            continue
        total = -math.inf
        for i in range(find_steps(data, at, end, next_character(data, at, end), pieces, found)):
            rest = behind[found.ends[i] - start]
            total = add_logs(total, alpha * pieces.scores[found.ids[i]] + rest)
        behind[at - start] = total
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
        else:
            lost += found.ends[chosen] - at if token == pieces.unknown else 0
            if token != pieces.unknown or last != pieces.unknown:
                out[number] = np.uint32(token)
                number += 1
        last, at = token, found.ends[chosen]
    return number - first, int(lost)


encode_pretokens = encoding_kernel(encode_one, Pieces, Work)
sample_pretokens = sampling_kernel(draw_one, Pieces, Work)
