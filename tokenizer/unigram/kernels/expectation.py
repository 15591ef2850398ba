"""Expected counts of pieces over all segmentations of the pre-tokens (forward-backward), and the M-step.

Short pre-tokens are computed with probabilities, which cannot underflow there; longer ones with logarithms.
A pre-token's pieces are listed once, as edges from each of its bytes, since the text stays the same.
"""

import math
from typing import NamedTuple

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Float64In, Int32, Int32In, Int64, Int64In
from tokmill.tokenizer.kernels.token_trie import TokenTrie
from tokmill.tokenizer.unigram.kernels.lattice import Found, find_pieces
from tokmill.tokenizer.unigram.kernels.rounding import to_high_digits, to_step

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
    """List the pieces at each byte of pre-tokens of well-formed UTF-8.

    Args:
        data: the pre-tokens.
        offsets: shape (num_pretokens + 1,).
        trie: the pieces.
        found: scratch.
        starts: shape (num_bytes + 1,); written.
        edges: receives the pieces; if it is empty, they are only counted.

    Returns:
        The number of edges.
    """
    number, writing = 0, edges.shape[0] > 0
    for k in range(offsets.shape[0] - 1):
        for at in range(offsets[k], offsets[k + 1]):
            starts[at] = number
            if data[at] & 0xC0 == 0x80:
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
    """Add the expected counts of pieces in the pre-tokens from `first` to `after`.

    Args:
        offsets: shape (num_pretokens + 1,).
        counts: shape (num_pretokens,).
        first: a pre-token.
        after: a pre-token.
        starts: from `list_edges`.
        edges: from `list_edges`, of pieces that are alive.
        lengths: shape (num_pieces,), the bytes of each piece.
        scores: shape (num_pieces,), log probabilities.
        chances: shape (num_pieces,), probabilities.
        least_score: the least score of a piece that is alive.
        sums: scratch.
        expected: shape (num_pieces,); the expected counts are added.

    Returns:
        The log probability of these pre-tokens.
    """
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
    """Set scores from expected counts, as sentencepiece does: digamma(count) - digamma(sum), rounded.

    Args:
        expected: shape (num_pieces,); changed: a kept piece that is expected less than 0.5 times counts
            as 0.5.
        kept: shape (num_pieces,), whether a piece is kept however rare it is.
        scores: shape (num_pieces,), -inf for pieces that are dropped; written.
        chances: shape (num_pieces,); written: probabilities, which are a little less than 1 together.

    Returns:
        The number of pieces left: others are expected less than 0.5 times, and dropped.
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
