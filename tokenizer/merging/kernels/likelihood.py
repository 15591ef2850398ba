"""Training by merges of the greatest likelihood, f(ab) / (f(a) f(b)), instead of the greatest frequency.

A merge changes the frequencies of its two symbols and so the scores of all of their pairs. A tournament tree
over the pairs has the best one at its root. Scores are compared exactly, as integers, where floating point
cannot tell.
"""

from typing import Any, NamedTuple

import numpy as np

from tokmill.tokenizer.jit import Kernel, kernel, specialized
from tokmill.tokenizer.jit.arrays import Float64, Int32, Int64
from tokmill.tokenizer.merging.kernels.merges import JOINED, lacks_bytes, lacks_room, merge_pair, merge_pairs
from tokmill.tokenizer.merging.kernels.pair_lists import count_buckets, list_places, make_pairs
from tokmill.tokenizer.merging.kernels.pair_queue import first_pair, wins
from tokmill.tokenizer.merging.kernels.state import (
    MADE_ALL,
    NO_BYTES,
    NO_ROOM,
    NUM_PAIRS,
    NUM_TOKENS,
    Pairs,
    Rules,
    Side,
    Tokens,
    WideWords,
    Words,
    compact,
)

_NEAR = 1e-9  # floating point decides between scores that differ by more; integers decide between others
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


class Scores(NamedTuple):
    """Symbols and pairs by score.

    Attributes:
        frequency: by symbol; how often it occurs.
        of_left: by symbol; the newest pair that it is the left part of, -1 for none.
        of_right: the same, as the right part.
        next_of_left: by pair; the next older pair with the same left symbol, -1 for none.
        next_of_right: by pair; the next older pair with the same right symbol, -1 for none.
        score: by pair, about.
        tree: shape (2 * a power of two,); the better of the pairs below each node, -1 for none. The second
            half are leaves.
    """

    frequency: Int64
    of_left: Int32
    of_right: Int32
    next_of_left: Int32
    next_of_right: Int32
    score: Float64
    tree: Int32


@kernel(inline=True)
def product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the upper and the lower 64 bits of a product of two words."""
    a_low, a_high, b_low, b_high = a & _LOWER, a >> _HALF, b & _LOWER, b >> _HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    other_middle = a_low * b_high + (middle & _LOWER)
    return a_high * b_high + (middle >> _HALF) + (other_middle >> _HALF), other_middle << _HALF | low & _LOWER


@kernel(inline=True)
def triple(one: int, two: int, three: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the 192 bits of a product of three numbers below 2^63, the highest first."""
    high, low = product(np.uint64(one), np.uint64(two))
    carried, lowest = product(low, np.uint64(three))
    highest, middle = product(high, np.uint64(three))
    middle += carried
    return highest + (np.uint64(1) if middle < carried else np.uint64(0)), middle, lowest


@kernel
def better_pair(tokens: Tokens, pairs: Pairs, rules: Rules, scores: Scores, one: int, other: int) -> int:
    """Return the pair that is merged first of two, either of which may be none (-1)."""
    if one < 0 or other < 0:
        return max(one, other)
    difference = scores.score[one] - scores.score[other]
    if abs(difference) > _NEAR * (scores.score[one] + scores.score[other]):
        return one if difference > 0 else other
    f = scores.frequency
    mine = triple(pairs.frequency[one], f[pairs.left[other]], f[pairs.right[other]])
    theirs = triple(pairs.frequency[other], f[pairs.left[one]], f[pairs.right[one]])
    if mine != theirs:
        return one if mine > theirs else other
    if pairs.frequency[one] != pairs.frequency[other]:
        return one if pairs.frequency[one] > pairs.frequency[other] else other
    return one if wins(tokens, pairs, rules, one, other) else other


@kernel
def renew(tokens: Tokens, pairs: Pairs, rules: Rules, scores: Scores, pair: int) -> None:
    """Recompute a pair's score, and its way up the tree, as far as that depends on it."""
    count, tree = pairs.frequency[pair], scores.tree
    if count >= rules.min_count:
        left, right = scores.frequency[pairs.left[pair]], scores.frequency[pairs.right[pair]]
        scores.score[pair] = np.float64(count) / np.float64(left) / np.float64(right)
    node = tree.shape[0] // 2 + pair
    tree[node] = pair if count >= rules.min_count else -1
    node //= 2
    while node > 0:
        one, other, last = np.int64(tree[2 * node]), np.int64(tree[2 * node + 1]), np.int64(tree[node])
        best = better_pair(tokens, pairs, rules, scores, one, other)
        tree[node] = best
        if best == last and best != pair:  # no node above has to do with this pair
            break
        node //= 2


@kernel(inline=True)
def link(pairs: Pairs, scores: Scores, pair: int) -> None:
    """Add a pair to those of its symbols."""
    left, right = pairs.left[pair], pairs.right[pair]
    scores.next_of_left[pair], scores.of_left[left] = scores.of_left[left], pair
    scores.next_of_right[pair], scores.of_right[right] = scores.of_right[right], pair


@kernel
def rank_pairs(tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64, scores: Scores) -> None:
    """Score all pairs, which are not linked yet, and fill the empty tree."""
    tree, size = scores.tree, scores.tree.shape[0] // 2
    for pair in range(counters[NUM_PAIRS]):
        link(pairs, scores, pair)
        if pairs.frequency[pair] >= rules.min_count:
            left, right = scores.frequency[pairs.left[pair]], scores.frequency[pairs.right[pair]]
            scores.score[pair] = np.float64(pairs.frequency[pair]) / np.float64(left) / np.float64(right)
            tree[size + pair] = pair
    for node in range(size - 1, 0, -1):
        one, other = np.int64(tree[2 * node]), np.int64(tree[2 * node + 1])
        tree[node] = better_pair(tokens, pairs, rules, scores, one, other)


@kernel
def renew_around(tokens: Tokens, pairs: Pairs, rules: Rules, scores: Scores, symbol: int) -> None:
    """Renew all pairs of a symbol, whose frequency has changed."""
    pair = np.int64(scores.of_left[symbol])
    while pair >= 0:
        renew(tokens, pairs, rules, scores, pair)
        pair = np.int64(scores.next_of_left[pair])
    pair = np.int64(scores.of_right[symbol])
    while pair >= 0:
        renew(tokens, pairs, rules, scores, pair)
        pair = np.int64(scores.next_of_right[pair])


@kernel
def merge_likeliest(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    before: Side,
    behind: Side,
    rules: Rules,
    counters: Int64,
    seen: Int64,
    scores: Scores,
) -> int:
    """Merge the best pair, and renew the pairs around it; return MADE_ALL, NO_ROOM or NO_BYTES."""
    pair = np.int64(scores.tree[1])
    if lacks_room(pairs, counters, pair):
        return NO_ROOM
    if lacks_bytes(tokens, pairs, counters, pair):
        return NO_BYTES
    left, right = np.int64(pairs.left[pair]), np.int64(pairs.right[pair])
    token, known = counters[NUM_TOKENS], counters[NUM_PAIRS]
    seen[JOINED] = 0
    merge_pair(words, tokens, pairs, before, behind, rules, counters, seen, pair)
    scores.frequency[left] -= seen[JOINED]
    scores.frequency[right] -= seen[JOINED]
    scores.frequency[token] = seen[JOINED]
    for made in range(known, counters[NUM_PAIRS]):
        link(pairs, scores, made)
    renew_around(tokens, pairs, rules, scores, left)
    renew_around(tokens, pairs, rules, scores, right)
    renew_around(tokens, pairs, rules, scores, token)
    return MADE_ALL


class TrainingKernels(NamedTuple):
    """The kernels of these names, for one width of cells."""

    compact: Kernel[..., int]
    count_buckets: Kernel[..., None]
    list_places: Kernel[..., None]
    make_pairs: Kernel[..., int]
    first_pair: Kernel[..., int]
    merge_pairs: Kernel[..., int]
    merge_likeliest: Kernel[..., int]


NARROW = TrainingKernels(
    compact, count_buckets, list_places, make_pairs, first_pair, merge_pairs, merge_likeliest
)
_wide: list[Kernel[..., Any]] = [specialized(made.py_func, {"words": WideWords}) for made in NARROW]
WIDE = TrainingKernels(*_wide)
