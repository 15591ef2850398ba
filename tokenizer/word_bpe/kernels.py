"""Encode words: characters merged by rank, the last one with the mark of the end, or the longest piece first.

A mark that is a symbol comes after the last byte. By length, a piece is as long as it has letters; a heap has
the longest piece from each place, and one that reaches into what is taken is looked for again.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64Table, UInt32
from tokmill.tokenizer.kernels.characters import count_characters, read_character
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel, sampling_kernel
from tokmill.tokenizer.kernels.merges import (
    POSITION_BITS,
    POSITION_MASK,
    Scratch,
    Unknown,
    merge_symbols,
    merge_with_dropout,
    put_symbol,
    sift_down,
    sift_up,
    write_known,
)
from tokmill.tokenizer.kernels.pair_tables import PairTables
from tokmill.tokenizer.kernels.tries import TokenTrie, longest_token


class Pieces(NamedTuple):
    """A vocabulary; only read.

    Attributes:
        inner: shape (0x110000,), the symbol of each character by code point, or shape (256,), of each byte;
            that of `unknown` where there is none.
        ending: the same for characters that end words.
        by_bytes: whether a byte is taken for a character.
        mark: the symbol of the mark that stands for itself, or -1.
        pairs: the merges, by rank.
        by_length: whether the longest piece is taken first, and no merge.
        whole: the pieces without the mark; empty unless `by_length`.
        final: the pieces with the mark, without it; the same.
        longest: the most bytes of one of these.
        unknown: what becomes of characters that are not pieces, all of which have its first symbol.
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
    unknown: Unknown


@kernel(inline=True)
def start_word(data: BytesIn, start: int, end: int, pieces: Pieces, scratch: Scratch) -> int:
    """Put the symbols of a word; return the number of places."""
    at, before, length = start, np.int64(-1), end - start
    while at < end:
        point, after = np.int64(data[at]), at + 1
        if not pieces.by_bytes:
            point, after = read_character(data, at, end)
        symbols = pieces.ending if after == end else pieces.inner
        symbol = np.int64(symbols[point]) if point >= 0 else np.int64(pieces.unknown.first)
        before = put_symbol(symbol, at - start, after - start, before, scratch)
        at = after
    if pieces.mark < 0:
        return length
    put_symbol(pieces.mark, length, length + 1, before, scratch)
    return length + 1


_MOST = np.uint64(0xFFFFFFFF)


@kernel(inline=True)
def num_letters(data: BytesIn, start: int, end: int, by_bytes: bool) -> int:
    """Return the number of letters from `start` to `end`."""
    return end - start if by_bytes else count_characters(data, start, end)


@kernel(inline=True)
def longest_from(
    data: BytesIn, start: int, length: int, at: int, limit: int, last: int, pieces: Pieces
) -> tuple[int, int, int]:
    """Find the longest piece from a place on."""
    token, after, end = np.int64(-1), start + at, start + length
    if at >= length:  # the mark that stands apart
        return token, at, 0
    if limit == length + (1 if pieces.mark >= 0 else 0) and length - at <= pieces.longest:
        token, after = longest_token(data, start + at, end, pieces.final)
        if token >= 0 and after == end:
            return token, limit, num_letters(data, start + at, end, pieces.by_bytes) + limit - length
    inner = start + min(limit, last)
    if start + at >= inner:
        return np.int64(-1), at, 0
    token, after = longest_token(data, start + at, inner, pieces.whole)
    return token, after - start, num_letters(data, start + at, after, pieces.by_bytes)


@kernel(inline=True)
def next_taken(at: int, places: int, pieces: Pieces, scratch: Scratch) -> int:
    """Return the next place that is taken, `places` if there is none; it may be too far for any piece."""
    place = at
    while place < places and scratch.preceding[place] >= 0:
        if place - at > pieces.longest:
            return place
        place += 1
    return place


@kernel(inline=True)
def take_longest(
    data: BytesIn, start: int, length: int, places: int, pieces: Pieces, scratch: Scratch
) -> None:
    """Cut a word whose symbols are set up; `preceding` becomes -1 where a place is taken."""
    size, at, last = np.int64(0), np.int64(0), np.int64(0)
    while at < places:
        last = at
        at = np.int64(scratch.following[at])
    last = length if pieces.mark >= 0 else last
    for place in range(places):
        scratch.preceding[place] = 0
    at = np.int64(0)
    while at < places:
        token, _, amount = longest_from(data, start, length, at, places, last, pieces)
        if token >= 0 and amount > 1:
            sift_up(scratch.heap, size, (_MOST - np.uint64(amount)) << POSITION_BITS | np.uint64(at))
            size += 1
        at = np.int64(scratch.following[at])
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        at = np.int64(top & POSITION_MASK)
        if scratch.preceding[at] < 0:
            continue
        limit = next_taken(at, places, pieces, scratch)
        token, after, amount = longest_from(data, start, length, at, limit, last, pieces)
        if token < 0 or amount < 2:
            continue
        item = (_MOST - np.uint64(amount)) << POSITION_BITS | np.uint64(at)
        if item != top:
            sift_up(scratch.heap, size, item)
            size += 1
            continue
        scratch.ids[at], scratch.following[at] = token, after
        for place in range(at, after):
            scratch.preceding[place] = -1


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, pieces: Pieces, room: Scratch, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a word; see `kernels.encoding`."""
    places = start_word(data, start, end, pieces, room)
    if pieces.by_length:
        take_longest(data, start, end - start, places, pieces, room)
    else:
        merge_symbols(places, pieces.pairs, room)
    return write_known(data, start, end, places, pieces.unknown, room, memory.spans, out, at)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    scratch: Scratch,
    spans: Int64Table,
    dropout: float,
    state: np.uint64,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Encode a word with dropout."""
    places = start_word(data, start, end, pieces, scratch)
    merge_with_dropout(places, pieces.pairs, scratch, dropout, state)
    return write_known(data, start, end, places, pieces.unknown, scratch, spans, out, at)


encode_words = encoding_kernel(encode_one, Pieces, Scratch)
sample_words = sampling_kernel(draw_one, Pieces, Scratch)
