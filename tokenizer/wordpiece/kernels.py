"""Encoding of words by WordPiece: the longest piece at each place, first of those that begin words."""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64Table, UInt32
from tokmill.tokenizer.kernels.characters import count_characters, next_character
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel, lose_all, put_span
from tokmill.tokenizer.kernels.tries import TokenTrie, longest_token


class Pieces(NamedTuple):
    """A WordPiece vocabulary.

    Attributes:
        beginning: the pieces that begin words, as a trie.
        continuing: the pieces that continue words as a trie, without `##`.
        unknown: the id of unknown text.
        max_chars: longer words are unknown as a whole.
        by_part: whether text that does not fit is unknown by itself, and not with its word.
    """

    beginning: TokenTrie
    continuing: TokenTrie
    unknown: int
    max_chars: int
    by_part: bool


@kernel(inline=True)
def put(ids: UInt32, spans: Int64Table, number: int, token: int, start: int, end: int) -> int:
    """Write a token, and its place if places are wanted; return the number of tokens."""
    ids[number] = np.uint32(token)
    put_span(spans, number, start, end)
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
    """Write the ids of a word; return the number of ids so far, and of unknown bytes."""
    number, at, lost, begin = first, start, np.int64(0), np.int64(-1)
    if end - start > pieces.max_chars and count_characters(data, start, end) > pieces.max_chars:
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
            at = next_character(data, at, end)
        else:
            return put(ids, spans, first, pieces.unknown, start, end), end - start
    if begin >= 0:
        number = put(ids, spans, number, pieces.unknown, begin, end)
        lost += end - begin
    return number, lost


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, pieces: Pieces, scratch: int, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a word; see `kernels.encoding`."""
    number, lost = encode_word(data, start, end, pieces, out, memory.spans, at)
    return number - at, lost


encode_words = encoding_kernel(encode_one, Pieces, int, lose_all)
