"""Encode words: characters merged by rank, the last one with the mark of the end, or the longest piece first.

Symbols are a linked list over the bytes at which they begin; a mark that is a symbol comes after the last
byte. By length, a piece is as long as it has letters; a heap has the longest piece from each place, and one
that reaches into what is taken is looked for again. A cache has known words, but none with unknown
characters.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64, Int64In, Int64Table, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    EncodingCache,
    Fetched,
    fetch_ahead,
    recall,
    remember,
)
from tokmill.tokenizer.kernels.characters import read_character
from tokmill.tokenizer.kernels.draws import first_state, merge_with_dropout
from tokmill.tokenizer.kernels.merges import (
    NO_MERGE,
    POSITION_BITS,
    POSITION_MASK,
    PairTables,
    Scratch,
    find_rank,
    merge_symbols,
    sift_down,
    sift_up,
)
from tokmill.tokenizer.kernels.tries import TokenTrie, longest_token


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


_MOST = np.uint64(0xFFFFFFFF)


@kernel(inline=True)
def num_characters(data: BytesIn, start: int, end: int, by_bytes: bool) -> int:
    """Return the number of characters from `start` to `end`."""
    if by_bytes:
        return end - start
    number = 0
    for i in range(start, end):
        number += 1 if data[i] & 0xC0 != 0x80 else 0
    return number


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
            return token, limit, num_characters(data, start + at, end, pieces.by_bytes) + limit - length
    inner = start + min(limit, last)
    if start + at >= inner:
        return np.int64(-1), at, 0
    token, after = longest_token(data, start + at, inner, pieces.whole)
    return token, after - start, num_characters(data, start + at, after, pieces.by_bytes)


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


@kernel
def sample_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    nowhere: Int64Table,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
) -> int:
    """Write the ids of the words of some documents, with dropout; return the number of ids.

    The random numbers depend on the seed, the word and its number in its document, and on nothing else.
    """
    number = np.int64(0)
    for document in range(bounds.shape[0] - 1):
        lost_bytes[document] = 0
        for k in range(bounds[document], bounds[document + 1]):
            start, end = starts[k], ends[k]
            places = start_word(data, start, end, pieces, scratch)
            state = first_state(seed[0], data, start, end, k - bounds[document])
            merge_with_dropout(places, pieces.pairs, scratch, left_out, dropout, state)
            count, lost = write_word(start, end - start, places, pieces, scratch, ids, nowhere, number)
            number += count
            lost_bytes[document] += lost
        id_ends[document + 1] = number
    return number


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        scratch: see `kernels.merges`; with one place more than the longest word has bytes.
        fetched: where a block of words is in the cache.
        nowhere: shape (0, 2), the places of ids, which are not wanted.
    """

    cache: EncodingCache
    scratch: Scratch
    fetched: Fetched
    nowhere: Int64Table


@kernel(inline=True)
def cut_word(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    scratch: Scratch,
    ids: UInt32,
    spans: Int64Table,
    first: int,
) -> tuple[int, int]:
    """Write the ids of a word; return their number, and the number of unknown bytes."""
    places = start_word(data, start, end, pieces, scratch)
    if pieces.by_length:
        take_longest(data, start, end - start, places, pieces, scratch)
    else:
        merge_symbols(places, pieces.pairs, scratch)
    return write_word(start, end - start, places, pieces, scratch, ids, spans, first)


@kernel(inline=True)
def encode_word(
    data: BytesIn, start: int, end: int, row: int, pieces: Pieces, memory: Memory, ids: UInt32, first: int
) -> tuple[int, int]:
    """Write the ids of a word, which may be remembered; return the number of ids and of unknown bytes."""
    count = recall(data, start, end - start, row, memory.cache, memory.fetched, ids, first)
    if count > 0:
        return count, 0
    count, lost = cut_word(data, start, end, pieces, memory.scratch, ids, memory.nowhere, first)
    if lost == 0:
        remember(data, start, end - start, row, memory.cache, memory.fetched, ids, first, count)
    return count, lost


@kernel
def encode_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    edges: Int64In,
    pieces: Pieces,
    memory: Memory,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
) -> int:
    """Write the ids of the words of some segments; return how many ids were written."""
    number = np.int64(0)
    id_ends[0] = 0
    for segment in range(kinds.shape[0]):
        first, last = bounds[segment], bounds[segment + 1]
        lost = edges[segment + 1] - edges[segment]
        if kinds[segment] >= 0:
            ids[number] = np.uint32(kinds[segment])
            number += 1
            lost = lost if kinds[segment] == pieces.unknown_id else np.int64(0)
            first = last
        for begin in range(first, last, BLOCK):
            end = min(begin + BLOCK, last)
            fetch_ahead(data, starts, ends, begin, end, memory.cache, memory.fetched)
            for k in range(begin, end):
                count, missed = encode_word(data, starts[k], ends[k], k - begin, pieces, memory, ids, number)
                number += count
                lost += missed - (ends[k] - starts[k])
        lost_bytes[segment] = lost
        id_ends[segment + 1] = number
    return number


@kernel
def locate_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    edges: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    ids: UInt32,
    spans: Int64Table,
) -> int:
    """Write the ids of some segments, and where each begins and ends; return their number."""
    number = np.int64(0)
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            ids[number] = np.uint32(kinds[segment])
            spans[number, 0], spans[number, 1] = edges[segment], edges[segment + 1]
            number += 1
            continue
        for k in range(bounds[segment], bounds[segment + 1]):
            count, _ = cut_word(data, starts[k], ends[k], pieces, scratch, ids, spans, number)
            number += count
    return number
