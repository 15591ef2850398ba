"""The lattice of a pre-token (the pieces that begin at each of its characters), and the best path (Viterbi).

A character is a byte and the continuation bytes after it; where no piece covers exactly one, the unknown
token does. Scores are added from left to right in float64, and of equal paths the one whose last piece is
longest stays, as in Hugging Face's tokenizers. sentencepiece rounds each sum to 32 bits, as is done here with
`Pieces.single`, and begins to add at 0 again wherever the sum to a character is below `LOWEST`.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, Int64In, Int64Table, UInt32, UInt64
from tokmill.tokenizer.kernels.characters import continues, next_character
from tokmill.tokenizer.kernels.encoding import put_span
from tokmill.tokenizer.kernels.tries import TokenTrie, child_of


class Pieces(NamedTuple):
    """A vocabulary of pieces; only read.

    Attributes:
        trie: the pieces.
        scores: shape (num_ids,), the log probability of each; the unknown token's is what it costs.
        unknown: the unknown token's id.
        byte_ids: shape (256,), the ids of the bytes that stand in for an unknown character; else empty.
        single: whether sums of scores are rounded to 32 bits at every step, as sentencepiece's are.
        neighbours: bits of the characters that stand side by side in pieces; empty unless `single`.
        worst: no character costs more, be it a piece or unknown; 0 unless `single`.
    """

    trie: TokenTrie
    scores: Float64
    unknown: int
    byte_ids: Int32
    single: bool
    neighbours: UInt64
    worst: float


class Found(NamedTuple):
    """The pieces that begin at one place, the shortest first; shape (the longest piece's bytes + 1,) each.

    Attributes:
        ids: their ids.
        ends: where they end.
    """

    ids: Int32
    ends: Int64


def make_found(longest: int) -> Found:
    """Make room for the pieces at one place, of which the longest has so many bytes."""
    return Found(np.empty(longest + 1, np.int32), np.empty(longest + 1, np.int64))


@kernel(inline=True)
def is_bound(data: BytesIn, at: int, end: int) -> bool:
    """Whether a character ends at `at`, in a pre-token that ends at `end`."""
    return at >= end or not continues(data, at)


@kernel(inline=True)
def find_pieces(data: BytesIn, at: int, end: int, trie: TokenTrie, found: Found) -> int:
    """List the pieces that begin at `at` and end by `end`, the shortest first; return their number."""
    count, position = 0, at + 1
    token = trie.byte_ids[data[at]]
    if token >= 0 and is_bound(data, position, end):
        found.ids[count], found.ends[count] = token, position
        count += 1
    if position >= end:
        return count
    node = int(trie.first_two[np.int64(data[at]) << 8 | np.int64(data[position])])
    position += 1
    while node >= 0:
        children = int(trie.nodes[node])
        if children & 1 and is_bound(data, position, end):
            found.ids[count], found.ends[count] = trie.tokens[node], position
            count += 1
        if position >= end:
            break
        node = child_of(node, children >> 1, int(data[position]), trie)
        position += 1
    return count


@kernel(inline=True)
def find_steps(data: BytesIn, at: int, end: int, after: int, pieces: Pieces, found: Found) -> int:
    """List the pieces at a character that ends at `after`, and the unknown token if none covers just that."""
    count = find_pieces(data, at, end, pieces.trie, found)
    if count > 0 and found.ends[0] == after:
        return count
    found.ids[count], found.ends[count] = pieces.unknown, after
    return count + 1


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
    data: BytesIn,
    start: int,
    length: int,
    pieces: Pieces,
    paths: Paths,
    spans: Int64Table,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Write the ids of the best path, and their spans if wanted; return the numbers of ids and unknown bytes.

    An unknown character becomes its bytes, if there are ids for them; otherwise neighbouring unknown
    characters become one unknown token.
    """
    count, lost, last, place, by_bytes = 0, 0, -1, length, pieces.byte_ids.shape[0] > 0
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        lost += place - before if token == pieces.unknown and not by_bytes else 0
        count += ids_of(token, last, place - before, pieces)
        last, place = token, before
    k, last, place = at + count, -1, length
    while place > 0:
        token, before = int(paths.ids[place]), int(paths.back[place])
        number = ids_of(token, last, place - before, pieces)
        k -= number
        if token == pieces.unknown and by_bytes:
            for i in range(number):
                out[k + i] = np.uint32(pieces.byte_ids[data[start + before + i]])
                put_span(spans, k + i, start + before + i, start + before + i + 1)
        elif number > 0:
            out[k] = np.uint32(token)
            put_span(spans, k, start + before, start + place)
        elif spans.shape[0] > 0:
            spans[k, 0] = start + before
        last, place = token, before
    return count, lost


@kernel(inline=True)
def ids_of(token: int, last: int, length: int, pieces: Pieces) -> int:
    """Return how many ids a piece of the best path becomes; `last` is the piece after it."""
    if token == pieces.unknown and pieces.byte_ids.shape[0] > 0:
        return length
    return 0 if token == pieces.unknown and last == token else 1


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
