"""The most probable segmentation of a pre-token (Viterbi).

Scores are added from left to right in float64. Places are taken in ascending order, and of several paths to a
place the first one stays unless a later one is strictly better: of equal paths, the one whose last piece is
longest. Hugging Face's tokenizers decide in the same way, so the ids are the same. sentencepiece rounds each
sum to 32 bits; with `Pieces.single` this is done here, too, so that almost equal paths are decided as there.
It also begins to add at 0 again (since 0.2.3, as its ids tell) wherever the sum to a character is below
`LOWEST`: that sum is taken from those of all places ahead. Otherwise rounding would decide more and more.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, UInt32
from tokmill.tokenizer.unigram.kernels.lattice import Found, Pieces, find_steps, make_found, next_character

LOWEST = -100_000.0


class Paths(NamedTuple):
    """The best path to each byte of a pre-token; shape (longest pre-token + 1,) each.

    Attributes:
        best: its score.
        back: where its last piece begins; -1 if there is no path yet.
        ids: its last piece.
        found: scratch.
    """

    best: Float64
    back: Int32
    ids: Int32
    found: Found


def make_paths(length: int, longest_piece: int) -> Paths:
    """Make room for pre-tokens of up to `length` bytes."""
    back, ids = np.empty((2, length + 1), np.int32)
    return Paths(np.empty(length + 1, np.float64), back, ids, make_found(longest_piece))


@kernel(inline=True)
def find_best_path(data: BytesIn, start: int, end: int, pieces: Pieces, paths: Paths, before: float) -> None:
    """Fill in the best path to each character of `data[start:end]`; `before`: the score of what precedes."""
    paths.best[0] = before
    for place in range(1, end - start + 1):
        paths.back[place] = -1
    at, farthest = start, 0
    while at < end:
        after, here = next_character(data, at, end), paths.best[at - start]
        if pieces.single and here < LOWEST:
            for place in range(at - start, farthest + 1):
                paths.best[place] = np.float64(np.float32(paths.best[place] - here))
            here = 0.0
        for k in range(find_steps(data, at, end, after, pieces, paths.found)):
            to, token = paths.found.ends[k] - start, paths.found.ids[k]
            score = here + pieces.scores[token]
            if pieces.single:
                score = np.float64(np.float32(score))
            if paths.back[to] < 0 or score > paths.best[to]:
                paths.best[to], paths.back[to], paths.ids[to] = score, at - start, token
            farthest = max(farthest, to)
        at = after


@kernel(inline=True)
def write_path(
    data: BytesIn, start: int, length: int, pieces: Pieces, paths: Paths, out: UInt32, at: int
) -> tuple[int, int]:
    """Write the ids of the best path through a pre-token.

    An unknown character becomes its bytes, if there are ids for them; otherwise neighbouring unknown
    characters become one unknown token.

    Returns:
        The number of ids, and the number of unknown bytes.
    """
    count, lost, last, place = 0, 0, -1, length
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        if token == pieces.unknown:
            lost += place - before
        count += ids_of(token, last, place - before, pieces)
        last, place = token, before
    if pieces.byte_ids.shape[0] > 0:
        lost = 0
    k, last, place = at + count, -1, length
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        number = ids_of(token, last, place - before, pieces)
        k -= number
        if token == pieces.unknown and pieces.byte_ids.shape[0] > 0:
            for i in range(number):
                out[k + i] = np.uint32(pieces.byte_ids[data[start + before + i]])
        elif number > 0:
            out[k] = np.uint32(token)
        last, place = token, before
    return count, lost


@kernel(inline=True)
def ids_of(token: int, last: int, length: int, pieces: Pieces) -> int:
    """Return how many ids a piece of the best path becomes; `last` is the piece after it."""
    if token == pieces.unknown and pieces.byte_ids.shape[0] > 0:
        return length
    return 0 if token == pieces.unknown and last == token else 1


@kernel(inline=True)
def write_ends(
    start: int, length: int, pieces: Pieces, paths: Paths, count: int, out: Int64, at: int
) -> None:
    """Write where each token of the best path ends; `count` as `write_path` returns it."""
    k, last, place = at + count, -1, length
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        for i in range(ids_of(token, last, place - before, pieces)):
            k -= 1
            out[k] = start + place - i
        last, place = token, before
