"""Encode by checked longest matches: in nearly linear time, however long the pre-token is.

Every prefix of a text has one encoding, and a sequence is the encoding of its bytes if every two neighbours
are *compatible*: encoding their joined bytes gives these two. The longest token at a place is tried first,
then shorter ones; if none is compatible with the previous token, that one is removed, and its end is not
tried again. Every merge must have a higher rank than those of its parts. Source: van Antwerpen and Neubeck,
"So many tokens, so little time" (2024).
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int32Table, Int64, Int64In, UInt32, UInt64
from tokmill.tokenizer.kernels.pair_tables import NO_MERGE, PairTables, find_rank, pair_key
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


CODE_POINTS = 1 << 16
NO_CHARACTER = -1

# A token ends within the character behind it; begins within the one before it; begins within this and ends
# within the next; begins within the one before and ends within this.
_JOINS_NEXT, _JOINS_PREVIOUS, _ENDS_LIKE_PART, _BEGINS_LIKE_PART = 1, 2, 4, 8
_BITS_A_PAIR = 8
_SIX_BITS = 63


class Characters(NamedTuple):
    """The encodings and the neighbours in tokens of all characters of two and three bytes.

    Attributes:
        ids: shape (65536, 4), by code point: the number of ids of the character alone, and these ids.
        flags: shape (65536,), by code point: what it is next to in tokens that begin or end in a character.
        joined: shape (a power of two,), 64 bits each: pairs of characters that stand in a token.
        shift: 64 less the logarithm of the number of these bits.
    """

    ids: Int32Table
    flags: Bytes
    joined: UInt64
    shift: int


def empty_characters(num_pairs: int) -> Characters:
    """Make tables for up to `num_pairs` pairs of characters."""
    bits = max((_BITS_A_PAIR * int(num_pairs)).bit_length(), 12)
    return Characters(
        np.zeros((CODE_POINTS, 4), np.int32),
        np.zeros(CODE_POINTS, np.uint8),
        np.zeros(1 << (bits - 6), np.uint64),
        64 - bits,
    )


@kernel(inline=True)
def size_of(byte: int) -> int:
    """Return the bytes of a character of two or three bytes that begins with a byte; 0 for any other."""
    if byte < 0xC2 or byte >= 0xF0:
        return 0
    return 2 if byte < 0xE0 else 3


@kernel(inline=True)
def character_at(data: BytesIn, at: int, end: int) -> tuple[int, int]:
    """Return the code point and the size of a character of two or three bytes, or (NO_CHARACTER, 1)."""
    byte = np.int64(data[at])
    size = size_of(byte)
    if size == 0 or at + size > end:
        return NO_CHARACTER, 1
    second = np.int64(data[at + 1]) ^ 0x80
    if size == 2:
        return ((byte & 31) << 6 | second, 2) if second < 64 else (NO_CHARACTER, 1)
    third = np.int64(data[at + 2]) ^ 0x80
    code = (byte & 15) << 12 | second << 6 | third
    return (code, 3) if (second | third) < 64 and code >= 0x800 else (NO_CHARACTER, 1)


@kernel(inline=True)
def pair_bit(left: int, right: int, shift: int) -> tuple[int, np.uint64]:
    """Return the word and the bit of a pair of characters."""
    place = (np.uint64(left << 16 | right) * _MULTIPLIER) >> np.uint64(shift)
    return np.int64(place >> np.uint64(6)), _ONE << (place & np.uint64(_SIX_BITS))


@kernel(inline=True)
def apart(left: int, right: int, characters: Characters) -> bool:
    """Whether no token can join two neighbouring characters."""
    before, behind = np.int64(characters.flags[left]), np.int64(characters.flags[right])
    if (before & _JOINS_NEXT) | (behind & _JOINS_PREVIOUS) | (before & (behind >> 1) & _ENDS_LIKE_PART):
        return False
    word, bit = pair_bit(left, right, characters.shift)
    return characters.joined[word] & bit == 0


@kernel(inline=True)
def flag_ends(tail: BytesIn, start: int, end: int, flag: int, flags: Bytes) -> None:
    """Set a flag of all characters that end in the bytes `tail[start:end]`, one or two of them."""
    below = np.int64(tail[end - 1]) & _SIX_BITS
    step = 64
    if end - start == 2:
        below |= (np.int64(tail[start]) & _SIX_BITS) << 6
        step = 4096
    for code in range(below, CODE_POINTS, step):
        flags[code] |= flag


@kernel(inline=True)
def flag_beginnings(byte: int, flag: int, flags: Bytes) -> None:
    """Set a flag of all characters that begin with a byte."""
    first, after = (byte & 15) << 12, ((byte & 15) + 1) << 12
    if byte < 0xE0:
        first, after = (byte & 31) << 6, ((byte & 31) + 1) << 6
    for code in range(first, after):
        flags[code] |= flag


@kernel(inline=True)
def note_boundary(data: BytesIn, start: int, at: int, end: int, characters: Characters) -> bool:
    """Note what a token joins at `at`, where a character begins; True if it is a pair of whole characters."""
    first = at - 1
    while first > start and data[first] & 0xC0 == 0x80:
        first -= 1
    left_whole = data[first] & 0xC0 != 0x80
    left, left_size = character_at(data, first, at)
    if left_whole and (left == NO_CHARACTER or left_size != at - first):
        return False  # ASCII, or bytes that no character ends in
    right, _ = character_at(data, at, end)
    if left_whole and right != NO_CHARACTER:
        word, bit = pair_bit(left, right, characters.shift)
        characters.joined[word] |= bit
        return True
    if left_whole:
        characters.flags[left] |= _JOINS_NEXT
    elif right != NO_CHARACTER:
        flag = characters.flags[right] | _JOINS_PREVIOUS
        characters.flags[right] = flag
    else:
        flag_ends(data, max(first, at - 2), at, _ENDS_LIKE_PART, characters.flags)
        flag_beginnings(np.int64(data[at]), _BEGINS_LIKE_PART, characters.flags)
    return False


@kernel
def note_joined(data: BytesIn, token_offsets: Int64In, tokens: Int64In, characters: Characters) -> int:
    """Note which characters a vocabulary's tokens join; return how often two whole ones are neighbours."""
    pairs = 0
    for k in range(tokens.shape[0]):
        start, end = token_offsets[tokens[k]], token_offsets[tokens[k] + 1]
        for at in range(start + 1, end):
            if size_of(np.int64(data[at])) > 0:
                pairs += np.int64(note_boundary(data, start, at, end, characters))
    return pairs
