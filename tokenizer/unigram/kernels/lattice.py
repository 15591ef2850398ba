"""The lattice of a pre-token: the pieces that begin at each of its characters.

A character is a byte and the continuation bytes of UTF-8 that follow it, so every string of bytes has
characters. A piece lies between two bounds of characters. Where no piece covers exactly one character, the
unknown token does, with its own score.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int32, Int64, UInt64
from tokmill.tokenizer.kernels.token_trie import TokenTrie, child_of

_CONTINUES, _TOP_TWO = 0x80, 0xC0


class Pieces(NamedTuple):
    """A vocabulary of pieces; only read.

    Attributes:
        trie: the pieces.
        scores: shape (num_ids,), the log probability of each; the unknown token's is what it costs.
        unknown: the unknown token's id.
        byte_ids: shape (256,), the ids of the bytes that stand in for an unknown character; else empty.
        single: whether sums of scores are rounded to 32 bits at every step, as sentencepiece's are.
        neighbours: bits of the characters that stand side by side in pieces (`cuts`); empty unless `single`.
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
def next_character(data: BytesIn, at: int, end: int) -> int:
    """Return where the character at `at` ends, at most at `end`."""
    at += 1
    while at < end and data[at] & _TOP_TWO == _CONTINUES:
        at += 1
    return at


@kernel(inline=True)
def is_bound(data: BytesIn, at: int, end: int) -> bool:
    """Whether a character ends at `at`, in a pre-token that ends at `end`."""
    return at >= end or data[at] & _TOP_TWO != _CONTINUES


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
