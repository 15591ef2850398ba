"""Which pieces a training begins with, and what the text loses in likelihood if one is removed.

Substrings of pre-tokens are found in the sorted suffixes of all of them. Neighbours share their longest
prefixes, so all occurrences of a substring lie side by side. A stack holds the substrings that the suffixes
so far go on with, each deeper than the one below; what is taken off it is a class of substrings that occur at
the same places: those longer than the next one on the stack.
"""

import math
from typing import NamedTuple

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Float64In, Int32In, Int64, Int64In
from tokmill.tokenizer.kernels.characters import next_character
from tokmill.tokenizer.unigram.kernels.expectation import to_step
from tokmill.tokenizer.unigram.kernels.lattice import Paths, Pieces, find_pieces


@kernel
def count_best(
    offsets: Int64In,
    counts: Float64In,
    first: int,
    after: int,
    starts: Int64In,
    edges: Int32In,
    lengths: Int32In,
    scores: Float64In,
    paths: Paths,
    frequencies: Float64,
) -> None:
    """Add how often each piece is in the best segmentations of the pre-tokens from `first` to `after`."""
    for pretoken in range(first, after):
        start, size = offsets[pretoken], offsets[pretoken + 1] - offsets[pretoken]
        for i in range(1, size + 1):
            paths.back[i] = -1
        paths.best[0] = 0.0
        for i in range(size):
            for k in range(starts[start + i], starts[start + i + 1]):
                piece = edges[k]
                to, score = i + lengths[piece], paths.best[i] + scores[piece]
                if paths.back[to] < 0 or score > paths.best[to]:
                    paths.best[to], paths.back[to], paths.ids[to] = score, i, piece
        place = size
        while place > 0:
            frequencies[paths.ids[place]] += counts[pretoken]
            place = int(paths.back[place])


@kernel(inline=True)
def find_other_path(data: BytesIn, start: int, end: int, piece: int, pieces: Pieces, paths: Paths) -> bool:
    """Fill in the best paths through a piece's own bytes without the piece; return whether there is one."""
    for i in range(1, end - start + 1):
        paths.back[i] = -1
    paths.best[0], at = 0.0, start
    while at < end:
        if at == start or paths.back[at - start] >= 0:
            here = paths.best[at - start]
            for k in range(find_pieces(data, at, end, pieces.trie, paths.found)):
                to, token = paths.found.ends[k] - start, paths.found.ids[k]
                score = here + pieces.scores[token]
                if token == piece or score == -math.inf:
                    continue
                if paths.back[to] < 0 or score > paths.best[to]:
                    paths.best[to], paths.back[to], paths.ids[to] = score, at - start, token
        at = next_character(data, at, end)
    return bool(paths.back[end - start] >= 0)


@kernel
def find_losses(
    data: BytesIn,
    offsets: Int64In,
    pieces: Pieces,
    frequencies: Float64In,
    num_pretokens: float,
    first: int,
    after: int,
    paths: Paths,
    losses: Float64,
) -> None:
    """Find what removing each piece loses, in nats per pre-token."""
    total = 0.0
    for k in range(frequencies.shape[0]):
        total += frequencies[k]
    for piece in range(first, after):
        losses[piece], frequency = -math.inf, frequencies[piece]
        if frequency == 0 or pieces.scores[piece] == -math.inf:
            continue
        start, size = offsets[piece], offsets[piece + 1] - offsets[piece]
        if not find_other_path(data, start, start + size, piece, pieces, paths):
            losses[piece] = math.inf
        elif paths.best[size] <= pieces.scores[piece]:
            number, place = 0, size
            while place > 0:
                number += 1
                place = int(paths.back[place])
            whole, others, place = math.log(total + frequency * (number - 1)), 0.0, size
            while place > 0:
                others += math.log(frequencies[paths.ids[place]] + frequency) - whole
                place = int(paths.back[place])
            each = to_step(math.log(frequency) - math.log(total) - others)
            losses[piece] = frequency / num_pretokens * each


NUM_BUCKETS = 1 << 13
_BUCKETS_A_DOUBLING = 64


class Stack(NamedTuple):
    """The open classes of substrings; shape (characters of the longest + 2,) each, `weights` apart.

    Attributes:
        depths: bytes of the longest substring of the class.
        firsts: where its first suffix stands in the order.
    """

    depths: Int64
    firsts: Int64


class Substrings(NamedTuple):
    """Substrings that were chosen; shape (room,) each, `scores` apart.

    Attributes:
        firsts: where the first suffix that begins with it stands in the order.
        lengths: its bytes.
    """

    firsts: Int64
    lengths: Int64


@kernel
def shared_prefixes(data: BytesIn, starts: Int64In, ends: Int64In, order: Int64In, shared: Int64) -> None:
    """Write how many bytes of whole characters each suffix shares with the one before it in the order."""
    shared[0] = 0
    for k in range(1, order.shape[0]):
        one, other = starts[order[k - 1]], starts[order[k]]
        most, length = min(ends[order[k - 1]] - one, ends[order[k]] - other), 0
        while length < most and data[one + length] == data[other + length]:
            length += 1
        if length < ends[order[k]] - other:
            while length > 0 and data[other + length] & 0xC0 == 0x80:
                length -= 1
        shared[k] = length


@kernel(inline=True)
def bucket_of(score: float) -> int:
    """Return the bucket of a score of at least 1; greater scores are never in lower ones."""
    part, exponent = math.frexp(score)
    return exponent * _BUCKETS_A_DOUBLING + int((part - 0.5) * 2 * _BUCKETS_A_DOUBLING)


@kernel(inline=True)
def put_class(
    data: BytesIn,
    start: int,
    first: int,
    above: int,
    depth: int,
    weight: float,
    least_bucket: int,
    histogram: Int64,
    out: Substrings,
    scores: Float64,
    count: int,
) -> int:
    """Count the substrings of a class that are longer than `above`, and write those of a high score."""
    at, number = start, 0
    while at < start + depth:
        at = next_character(data, at, start + depth)
        number += 1
        if at - start > above and number > 1:
            bucket = bucket_of(weight * number)
            histogram[bucket] += 1
            if bucket >= least_bucket:
                out.firsts[count], out.lengths[count], scores[count] = first, at - start, weight * number
                count += 1
    return count


@kernel
def list_substrings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    order: Int64In,
    shared: Int64In,
    weights: Float64In,
    least: float,
    least_bucket: int,
    stack: Stack,
    sums: Float64,
    histogram: Int64,
    out: Substrings,
    scores: Float64,
) -> int:
    """List substrings of two characters or more, scored by frequency × characters; return their number."""
    height, count = 0, 0
    for i in range(order.shape[0] + 1):
        depth = shared[i] if i < order.shape[0] else 0
        first, carried = i, 0.0
        while height > 0 and stack.depths[height - 1] > depth:
            height -= 1
            first, carried = stack.firsts[height], carried + sums[height]
            above = depth if height == 0 else max(depth, stack.depths[height - 1])
            if carried >= least:
                start = starts[order[first]]
                found = start, first, above, stack.depths[height], carried
                count = put_class(data, *found, least_bucket, histogram, out, scores, count)
        if height > 0 and stack.depths[height - 1] == depth:
            sums[height - 1] += carried
        elif depth > 0:
            stack.depths[height], stack.firsts[height], sums[height] = depth, first, carried
            height += 1
        if i < order.shape[0]:
            length = ends[order[i]] - starts[order[i]]
            if height > 0 and stack.depths[height - 1] == length:
                sums[height - 1] += weights[order[i]]
            else:
                stack.depths[height], stack.firsts[height], sums[height] = length, i, weights[order[i]]
                height += 1
    return count
