"""Encode by checked longest matches: in nearly linear time, however long the pre-token is.

Every prefix of a text has one encoding, and two tokens may be neighbours in an encoding
exactly if encoding their joined bytes gives these two tokens: they are *compatible*. So a sequence of tokens
in which every two neighbours are compatible is the encoding of its bytes. The longest token at a place is
tried first, then the next shorter token that it begins with. If none is compatible with the previous token,
no token of the encoding ends here, and the previous token is removed. An end that was
given up once is never tried again.

This requires that every merge has a higher rank than the merges that make its parts. Source: van Antwerpen
and Neubeck, "So many tokens, so little time" (2024), whose `bpe` crate does the same.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int32Table, Int64, UInt32, UInt64
from tokmill.tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank, pair_key
from tokmill.tokenizer.kernels.tries import TokenTrie, longest_token

LEFT, RIGHT, RANK, PREFIX = 0, 1, 2, 3

_SEEN_BITS = 15
_ONE = np.uint64(1)
_SEEN_SHIFT = np.uint64(64 - _SEEN_BITS)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class TokenTable(NamedTuple):
    """Facts about each token.

    Attributes:
        facts: shape (num_ids, 4): the left and the right token that it is merged from, and the rank of that
            merge, -1 for a single byte; and the longest shorter token that it begins with, or -1.
        lengths: shape (num_ids,), in bytes.
    """

    facts: Int32Table
    lengths: Int32


class GreedyScratch(NamedTuple):
    """Working memory of one thread.

    Attributes:
        seen: shape (2 ** 15,), pairs that were checked, as `left << 22 | right << 1 | compatible`.
        given_up: shape (longest pre-token + 1,), the number of the pre-token that last gave up this end.
        number: shape (1,), of the present pre-token.
    """

    seen: UInt64
    given_up: Int64
    number: Int64


def make_greedy_scratch(length: int) -> GreedyScratch:
    """Make working memory for pre-tokens of up to `length` bytes."""
    return GreedyScratch(
        np.full(1 << _SEEN_BITS, -1, np.int64).view(np.uint64),
        np.zeros(length + 1, np.int64),
        np.zeros(1, np.int64),
    )


@kernel(inline=True)
def unmerge(left: int, right: int, pairs: PairTables, table: TokenTable) -> bool:
    """Whether two tokens are compatible; found by undoing their merges, the last one first.

    Whenever a token touches the boundary of the two, it must not have had an earlier merge across it than
    the merge that made it part of a larger token; of two merges of the same rank the left one comes first.
    """
    limit = np.int64(NO_MERGE)
    while True:
        if np.int64(find_rank(pairs, left, right)) < limit:
            return False
        first, second = np.uint64(left), np.uint64(right)
        left_rank, right_rank = np.int64(table.facts[first, RANK]), np.int64(table.facts[second, RANK])
        if left_rank > right_rank:
            limit = left_rank
            left = np.int64(table.facts[first, RIGHT])
        elif right_rank >= 0:
            limit = right_rank + 1
            right = np.int64(table.facts[second, LEFT])
        else:
            return True


@kernel(inline=True)
def compatible(left: int, right: int, pairs: PairTables, table: TokenTable, seen: UInt64) -> bool:
    """Whether two tokens may be neighbours; remembered if they were checked before."""
    key = pair_key(left, right)
    slot = (key * _MULTIPLIER) >> _SEEN_SHIFT
    entry = seen[slot]
    if entry >> _ONE == key:
        return entry & _ONE == _ONE
    answer = unmerge(left, right, pairs, table)
    seen[slot] = key << _ONE | np.uint64(answer)
    return answer


@kernel(inline=True)
def encode_greedily(
    data: BytesIn,
    start: int,
    end: int,
    pairs: PairTables,
    trie: TokenTrie,
    table: TokenTable,
    scratch: GreedyScratch,
    out: UInt32,
    first: int,
) -> int:
    """Encode a pre-token into `out` from `first` on; return the number of ids."""
    token, at = longest_token(data, start, end, trie)
    count, gave_up = np.int64(1), False
    out[first] = token
    if at < end:
        scratch.number[0] += 1
    while at < end:
        before = np.int64(out[first + count - 1])
        token, after = longest_token(data, at, end, trie)
        while True:
            open_end = not gave_up or scratch.given_up[after - start] != scratch.number[0]
            if open_end and (count == 0 or compatible(before, token, pairs, table, scratch.seen)):
                out[first + count] = token
                count += 1
                at = after
                break
            token = np.int64(table.facts[token, PREFIX])
            while token < 0:
                scratch.given_up[at - start] = scratch.number[0]
                gave_up = True
                count -= 1
                taken_back = np.int64(out[first + count])
                at -= np.int64(table.lengths[taken_back])
                token = np.int64(table.facts[taken_back, PREFIX])
                before = np.int64(out[first + count - 1]) if count > 0 else np.int64(-1)
            after = at + np.int64(table.lengths[token])
    return count


@kernel
def encode_characters(
    pairs: PairTables,
    trie: TokenTrie,
    table: TokenTable,
    scratch: GreedyScratch,
    text: Bytes,
    out: UInt32,
    ids: Int32Table,
) -> None:
    """Encode every single character of two and three bytes."""
    for code in range(0x80, ids.shape[0]):
        size = np.int64(2 if code < 0x800 else 3)
        text[0] = 0xC0 | code >> 6 if size == 2 else 0xE0 | code >> 12
        text[1] = 0x80 | (code & 63 if size == 2 else code >> 6 & 63)
        text[2] = 0x80 | code & 63
        count = encode_greedily(text, np.int64(0), size, pairs, trie, table, scratch, out, np.int64(0))
        ids[code, 0] = count
        for i in range(count):
            ids[code, i + 1] = out[i]
