"""The E-step, expected counts of pieces over all segmentations (forward-backward), the M-step, and losses.

Short pre-tokens are computed with probabilities, longer ones with logarithms; a pre-token's pieces are listed
once, as edges from each byte. C libraries differ in the last place of logarithms, so numbers are rounded
before they are compared, stored or used again (scores and losses to 1e-5 nats, expected counts to 32 binary
digits): all platforms round alike but for one number in a billion.
"""

import math
from typing import NamedTuple

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Float64In, Int32, Int32In, Int64, Int64In
from tokmill.tokenizer.kernels.characters import continues, next_character
from tokmill.tokenizer.kernels.tries import TokenTrie
from tokmill.tokenizer.unigram.lattice import Found, Paths, Pieces, find_pieces

STEPS = 1e5
"""Steps per nat; decimal, so that few digits say a score exactly."""

_HIGH = 2097153.0  # 2**21 + 1: leaves 32 of 53 binary digits


@kernel(inline=True)
def to_step(nats: float) -> float:
    """Round to steps of 1e-5, halves up; infinities stay."""
    if nats == -math.inf or nats == math.inf:
        return nats
    return math.floor(nats * STEPS + 0.5) / STEPS


@kernel(inline=True)
def to_high_digits(value: float) -> float:
    """Round to 32 binary digits (Veltkamp's splitting); for values far below the greatest float64."""
    scaled = value * _HIGH
    return scaled - (scaled - value)


_SAFE = 600.0
"""e to the power of minus this is far above the least float64."""

_LEAST_EXPECTED = 0.5


class Sums(NamedTuple):
    """Sums of probabilities to and from each byte of one pre-token; shape (the longest + 1,) each.

    Attributes:
        before: of all ways from its beginning.
        behind: of all ways to its end.
    """

    before: Float64
    behind: Float64


@kernel
def list_edges(
    data: BytesIn, offsets: Int64In, trie: TokenTrie, found: Found, starts: Int64, edges: Int32
) -> int:
    """List the pieces at each byte of pre-tokens of well-formed UTF-8; return the number of edges."""
    number, writing = 0, edges.shape[0] > 0
    for k in range(offsets.shape[0] - 1):
        for at in range(offsets[k], offsets[k + 1]):
            starts[at] = number
            if continues(data, at):
                continue
            count = find_pieces(data, at, offsets[k + 1], trie, found)
            if writing:
                for i in range(count):
                    edges[number + i] = found.ids[i]
            number += count
    starts[data.shape[0]] = number
    return number


@kernel
def drop_edges(alive: BytesIn, starts: Int64, edges: Int32) -> int:
    """Drop the edges of pieces that are no longer alive, in place; return the number that is left."""
    number, first = 0, 0
    for at in range(starts.shape[0] - 1):
        after = starts[at + 1]
        starts[at] = number
        for k in range(first, after):
            if alive[edges[k]]:
                edges[number] = edges[k]
                number += 1
        first = after
    starts[starts.shape[0] - 1] = number
    return number


@kernel(inline=True)
def add_logs(one: float, other: float) -> float:
    """Return the logarithm of the sum of two numbers, given by theirs."""
    high, low = max(one, other), min(one, other)
    if low == -math.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@kernel(inline=True)
def expect_short(
    start: int,
    end: int,
    count: float,
    starts: Int64In,
    edges: Int32In,
    lengths: Int32In,
    chances: Float64In,
    sums: Sums,
    expected: Float64,
) -> float:
    """Add the expected counts in a short pre-token; return the logarithm of its probability."""
    size = end - start
    for i in range(size + 1):
        sums.before[i], sums.behind[i] = 0.0, 0.0
    sums.before[0], sums.behind[size] = 1.0, 1.0
    for i in range(size):
        here = sums.before[i]
        for k in range(starts[start + i], starts[start + i + 1]):
            sums.before[i + lengths[edges[k]]] += here * chances[edges[k]]
    whole = sums.before[size]
    for i in range(size - 1, -1, -1):
        share, behind = sums.before[i] * count / whole, 0.0
        for k in range(starts[start + i], starts[start + i + 1]):
            piece = edges[k]
            mass = chances[piece] * sums.behind[i + lengths[piece]]
            behind += mass
            expected[piece] += share * mass
        sums.behind[i] = behind
    return math.log(whole)


@kernel(inline=True)
def expect_long(
    start: int,
    end: int,
    count: float,
    starts: Int64In,
    edges: Int32In,
    lengths: Int32In,
    scores: Float64In,
    sums: Sums,
    expected: Float64,
) -> float:
    """Do the same as `expect_short`, with logarithms."""
    size = end - start
    for i in range(size + 1):
        sums.before[i], sums.behind[i] = -math.inf, -math.inf
    sums.before[0], sums.behind[size] = 0.0, 0.0
    for i in range(size):
        here = sums.before[i]
        for k in range(starts[start + i], starts[start + i + 1]):
            to = i + lengths[edges[k]]
            sums.before[to] = add_logs(sums.before[to], here + scores[edges[k]])
    whole = sums.before[size]
    for i in range(size - 1, -1, -1):
        for k in range(starts[start + i], starts[start + i + 1]):
            piece = edges[k]
            mass = scores[piece] + sums.behind[i + lengths[piece]]
            sums.behind[i] = add_logs(sums.behind[i], mass)
            expected[piece] += count * math.exp(sums.before[i] + mass - whole)
    return float(whole)


@kernel
def expect(
    offsets: Int64In,
    counts: Float64In,
    first: int,
    after: int,
    starts: Int64In,
    edges: Int32In,
    lengths: Int32In,
    scores: Float64In,
    chances: Float64In,
    least_score: float,
    sums: Sums,
    expected: Float64,
) -> float:
    """Add the expected counts of pieces in some pre-tokens; return the log probability of these."""
    total = 0.0
    for k in range(first, after):
        start, end = offsets[k], offsets[k + 1]
        if (start - end) * least_score < _SAFE:
            found = expect_short(start, end, counts[k], starts, edges, lengths, chances, sums, expected)
        else:
            found = expect_long(start, end, counts[k], starts, edges, lengths, scores, sums, expected)
        total += counts[k] * found
    return total


@kernel(inline=True)
def digamma(x: float) -> float:
    """Return the derivative of the logarithm of the gamma function, by its asymptotic series."""
    result = 0.0
    while x < 7:
        result -= 1 / x
        x += 1
    x -= 0.5
    inverse = 1 / x
    square = inverse * inverse
    fourth = square * square
    result += math.log(x) + square / 24 - 7.0 / 960.0 * fourth + 31.0 / 8064.0 * fourth * square
    return result - 127.0 / 30720.0 * fourth * fourth


@kernel
def maximize(expected: Float64, kept: BytesIn, scores: Float64, chances: Float64) -> int:
    """Set scores to digamma(count) - digamma(sum), rounded; drop pieces below 0.5; return how many are left.

    A kept piece that is expected less than 0.5 times counts as 0.5.
    """
    total, left = 0.0, 0
    for k in range(expected.shape[0]):
        if kept[k]:
            expected[k] = max(expected[k], _LEAST_EXPECTED)
        if scores[k] == -math.inf or to_high_digits(expected[k]) < _LEAST_EXPECTED:
            expected[k] = 0.0
        total += expected[k]
    whole = digamma(total)
    for k in range(expected.shape[0]):
        scores[k], chances[k] = -math.inf, 0.0
        if expected[k] > 0:
            scores[k] = to_step(digamma(expected[k]) - whole)
            chances[k] = math.exp(scores[k])
            left += 1
    return left


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
