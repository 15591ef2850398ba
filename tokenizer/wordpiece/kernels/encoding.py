"""Encoding of words by WordPiece: whole words are looked up, others cut by the longest piece at each place.

Words are taken in blocks, as in `kernels.lookup`: first the memory that all of them need is asked for. A word
that is not a token is walked along two tries: of pieces that begin words, and then of pieces that continue
them.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, Int64Table, UInt32
from tokmill.tokenizer.kernels.counting import CountTables, hash_block
from tokmill.tokenizer.kernels.lookup import find_string
from tokmill.tokenizer.kernels.tries import TokenTrie, longest_token

_BLOCK = 32


class Pieces(NamedTuple):
    """A WordPiece vocabulary.

    Attributes:
        tables: the pieces that begin words; scratch for one thread.
        beginning: the same pieces as a trie.
        continuing: the pieces that continue words as a trie, without `##`.
        unknown: the id of unknown text.
        max_chars: longer words are unknown as a whole.
        by_part: whether text that does not fit is unknown by itself, and not with its word.
    """

    tables: CountTables
    beginning: TokenTrie
    continuing: TokenTrie
    unknown: int
    max_chars: int
    by_part: bool


@kernel(inline=True)
def num_chars(data: BytesIn, start: int, end: int) -> int:
    """Return the number of characters: of bytes that do not continue one in UTF-8."""
    number = 0
    for i in range(start, end):
        number += 1 if data[i] & 0xC0 != 0x80 else 0
    return number


@kernel(inline=True)
def next_char(data: BytesIn, at: int, end: int) -> int:
    """Return where the character after that at `at` begins."""
    at += 1
    while at < end and data[at] & 0xC0 == 0x80:
        at += 1
    return at


@kernel(inline=True)
def put(ids: UInt32, spans: Int64Table, number: int, token: int, start: int, end: int) -> int:
    """Write a token, and its place if places are wanted; return the number of tokens."""
    ids[number] = np.uint32(token)
    if spans.shape[0] > 0:
        spans[number, 0], spans[number, 1] = start, end
    return number + 1


@kernel(inline=True)
def longest_piece(data: BytesIn, start: int, at: int, end: int, pieces: Pieces) -> tuple[int, int]:
    """Return the longest piece at a place of a word, -1 if there is none, and where it ends."""
    if at == start:
        return longest_token(data, at, end, pieces.beginning)
    token, after = longest_token(data, at, end, pieces.continuing)
    if token < 0 and pieces.by_part:
        token, after = longest_token(data, at, end, pieces.beginning)
    return token, after


@kernel(inline=True)
def encode_word(
    data: BytesIn, start: int, end: int, pieces: Pieces, ids: UInt32, spans: Int64Table, first: int
) -> tuple[int, int]:
    """Write the ids of a word that is not a token; return the number of ids so far, and of unknown bytes."""
    number, at, lost, begin = first, start, np.int64(0), np.int64(-1)
    if end - start > pieces.max_chars and num_chars(data, start, end) > pieces.max_chars:
        return put(ids, spans, first, pieces.unknown, start, end), end - start
    while at < end:
        token, after = longest_piece(data, start, at, end, pieces)
        if token >= 0:
            if begin >= 0:
                number = put(ids, spans, number, pieces.unknown, begin, at)
                lost += at - begin
                begin = np.int64(-1)
            number = put(ids, spans, number, token, at, after)
            at = after
        elif pieces.by_part:
            begin = at if begin < 0 else begin
            at = next_char(data, at, end)
        else:
            return put(ids, spans, first, pieces.unknown, start, end), end - start
    if begin >= 0:
        number = put(ids, spans, number, pieces.unknown, begin, end)
        lost += end - begin
    return number, lost


@kernel(inline=True)
def encode_hashed(
    data: BytesIn, start: int, end: int, row: int, pieces: Pieces, ids: UInt32, spans: Int64Table, first: int
) -> tuple[int, int]:
    """Write the ids of a word that `hash_block` has hashed into a row; see `encode_word`."""
    token = find_string(data, start, end - start, row, pieces.tables)
    if token >= 0 and end - start <= pieces.max_chars:
        return put(ids, spans, first, token, start, end), np.int64(0)
    return encode_word(data, start, end, pieces, ids, spans, first)


@kernel
def encode_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    edges: Int64In,
    pieces: Pieces,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
    spans: Int64Table,
) -> int:
    """Write the ids of the words of some segments; return how many ids were written."""
    number = np.int64(0)
    id_ends[0] = 0
    for segment in range(kinds.shape[0]):
        first, last = bounds[segment], bounds[segment + 1]
        lost = edges[segment + 1] - edges[segment]
        if kinds[segment] >= 0:
            number = put(ids, spans, number, kinds[segment], edges[segment], edges[segment + 1])
            lost = lost if kinds[segment] == pieces.unknown else np.int64(0)
            first = last
        for begin in range(first, last, _BLOCK):
            end = min(begin + _BLOCK, last)
            hash_block(data, starts, ends, begin, end, pieces.tables)
            for k in range(begin, end):
                lost -= ends[k] - starts[k]
                number, missed = encode_hashed(
                    data, starts[k], ends[k], k - begin, pieces, ids, spans, number
                )
                lost += missed
        lost_bytes[segment] = lost
        id_ends[segment + 1] = number
    return number
