"""The symbols of a word: its characters, the last one with the mark of the end, merged by rank.

A symbol is the id of a piece. Those of a word are a linked list over the bytes at which they begin (see
`kernels.merges`); if the mark is a symbol of its own, it has the place after the last byte. A character that
is no piece has a symbol that no merge has.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64Table, UInt32
from tokmill.tokenizer.kernels.characters import read_character
from tokmill.tokenizer.kernels.merges import Scratch
from tokmill.tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank
from tokmill.tokenizer.kernels.tries import TokenTrie


class Pieces(NamedTuple):
    """A vocabulary; only read.

    Attributes:
        inner: shape (0x110000,), the symbol of each character by code point, or shape (256,), of each byte;
            `unknown` where there is none.
        ending: the same for characters that end words.
        by_bytes: whether a byte is taken for a character.
        mark: the symbol of the mark that stands for itself, or -1.
        pairs: the merges, by rank.
        by_length: whether the longest piece is taken first, and no merge.
        whole: the pieces without the mark; empty unless `by_length`.
        final: the pieces with the mark, without it; the same.
        longest: the most bytes of one of these.
        unknown: the symbol of characters that are no pieces; greater than every id.
        unknown_id: the unknown token's id, or -1.
        fused: whether neighbouring unknown characters become one token.
    """

    inner: Int32
    ending: Int32
    by_bytes: bool
    mark: int
    pairs: PairTables
    by_length: bool
    whole: TokenTrie
    final: TokenTrie
    longest: int
    unknown: int
    unknown_id: int
    fused: bool


@kernel(inline=True)
def start_word(data: BytesIn, start: int, end: int, pieces: Pieces, scratch: Scratch) -> int:
    """Set up the symbols of a word, and the ranks of their pairs; return the number of places."""
    at, before, length = start, np.int64(-1), end - start
    while at < end:
        point, after = np.int64(data[at]), at + 1
        if not pieces.by_bytes:
            point, after = read_character(data, at, end)
        symbols = pieces.ending if after == end else pieces.inner
        symbol = np.int64(symbols[point]) if point >= 0 else np.int64(pieces.unknown)
        before = put_symbol(symbol, at - start, after - start, before, pieces, scratch)
        for place in range(at - start + 1, after - start):
            scratch.ranks[place] = NO_MERGE
        at = after
    if pieces.mark < 0:
        return length
    put_symbol(pieces.mark, length, length + 1, before, pieces, scratch)
    return length + 1


@kernel(inline=True)
def put_symbol(symbol: int, at: int, after: int, before: int, pieces: Pieces, scratch: Scratch) -> int:
    """Put a symbol at a place, and the rank of its pair with the one before; return the place."""
    scratch.ids[at], scratch.ranks[at] = symbol, NO_MERGE
    scratch.preceding[at], scratch.following[at] = before, after
    if before >= 0:
        scratch.ranks[before] = find_rank(pieces.pairs, scratch.ids[before], scratch.ids[at])
    return at


@kernel(inline=True)
def write_word(
    start: int,
    length: int,
    places: int,
    pieces: Pieces,
    scratch: Scratch,
    out: UInt32,
    spans: Int64Table,
    first: int,
) -> tuple[int, int]:
    """Write a word's ids, and their spans if wanted; return the numbers of ids and of unknown bytes."""
    count, lost, at, was_unknown = 0, np.int64(0), np.int64(0), False
    while at < places:
        symbol, after = np.int64(scratch.ids[at]), np.int64(scratch.following[at])
        is_unknown, end = symbol == pieces.unknown, min(after, length)
        if is_unknown:
            lost += end - at
        if is_unknown and was_unknown and pieces.fused:
            count -= 1
        else:
            out[first + count] = np.uint32(pieces.unknown_id if is_unknown else symbol)
            if spans.shape[0] > 0:
                spans[first + count, 0] = start + min(at, length)
        if spans.shape[0] > 0:
            spans[first + count, 1] = start + end
        count += 1
        at, was_unknown = after, bool(is_unknown)
    return count, lost
