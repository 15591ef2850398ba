"""Segmentations other than the best one: the next best ones, and random ones."""

import math
from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, Int64In, UInt32, UInt64In
from tokmill.tokenizer.kernels.draws import STEP, first_state, unit_of
from tokmill.tokenizer.unigram.kernels.expectation import add_logs
from tokmill.tokenizer.unigram.kernels.lattice import Found, Pieces, find_steps, next_character


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
