"""The most probable segmentation of a pre-token (Viterbi).

Scores are added from left to right in float64. Places are taken in ascending order, and of several paths to a
place the first one stays unless a later one is strictly better: of equal paths, the one whose last piece is
longest. Hugging Face's tokenizers decide in the same way, so the ids are the same.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, UInt32
from tokmill.tokenizer.unigram.kernels.lattice import Found, Pieces, find_steps, make_found, next_character


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
def find_best_path(data: BytesIn, start: int, end: int, pieces: Pieces, paths: Paths) -> None:
    """Fill in the best path to each character of the pre-token `data[start:end]`."""
    paths.best[0] = 0.0
    for place in range(1, end - start + 1):
        paths.back[place] = -1
    at = start
    while at < end:
        after, here = next_character(data, at, end), paths.best[at - start]
        for k in range(find_steps(data, at, end, after, pieces, paths.found)):
            to, token = paths.found.ends[k] - start, paths.found.ids[k]
            score = here + pieces.scores[token]
            if paths.back[to] < 0 or score > paths.best[to]:
                paths.best[to], paths.back[to], paths.ids[to] = score, at - start, token
        at = after


@kernel(inline=True)
def write_path(length: int, unknown: int, paths: Paths, out: UInt32, at: int) -> tuple[int, int]:
    """Write the ids of the best path to the end; neighbouring unknown characters become one unknown token.

    Returns:
        The number of ids, and the number of unknown bytes.
    """
    count, lost, last, place = 0, 0, -1, length
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        if token == unknown:
            lost += place - before
        if token != unknown or last != unknown:
            count += 1
        last, place = token, before
    k, last, place = at + count, -1, length
    while place > 0:
        token = int(paths.ids[place])
        if token != unknown or last != unknown:
            k -= 1
            out[k] = np.uint32(token)
        last, place = token, int(paths.back[place])
    return count, lost


@kernel(inline=True)
def write_ends(start: int, length: int, unknown: int, paths: Paths, count: int, out: Int64, at: int) -> None:
    """Write where each token of the best path ends; `count` as `write_path` returns it."""
    k, last, place = at + count, -1, length
    while place > 0:
        token = int(paths.ids[place])
        if token != unknown or last != unknown:
            k -= 1
            out[k] = start + place
        last, place = token, int(paths.back[place])
