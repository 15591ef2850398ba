"""Cut text beyond ASCII between characters that no token joins; most parts are then one character.

Two neighbouring characters are *apart* if no token holds the end of the first and the beginning of the
second next to one another: no merge ever joins them, whatever is around them. So a pre-token may be cut
there, and its parts encoded separately. In Chinese and Japanese nearly all neighbours are apart, and the
encoding of a part of one character is looked up in a table.

This covers characters of two and three bytes. Which of them are apart is stored as a bit for each pair that
occurs whole in a token (hashed, so that a few more pairs count as joined), and as flags of a character for
tokens that begin or end within one.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32Table, Int64In, UInt64

CODE_POINTS = 1 << 16
NO_CHARACTER = -1

# A token ends within the character behind it; begins within the one before it; begins within this and ends
# within the next; begins within the one before and ends within this.
_JOINS_NEXT, _JOINS_PREVIOUS, _ENDS_LIKE_PART, _BEGINS_LIKE_PART = 1, 2, 4, 8
_BITS_A_PAIR = 8
_SIX_BITS = 63
_ONE = np.uint64(1)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


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
