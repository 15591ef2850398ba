"""What the text loses in likelihood if a piece is removed and its best other segmentation takes its place."""

import math

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Float64In, Int32In, Int64In
from tokmill.tokenizer.unigram.kernels.expectation import to_step
from tokmill.tokenizer.unigram.kernels.lattice import Paths, Pieces, find_pieces, next_character


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
