"""Encoding of text that is not normalized and not cut, a word at a time, with a memory of words.

Every character says what becomes of it under a normalizer and a pre-tokenizer that go by single characters:
it is part of a word, a word by itself, white space, or vanishes. So text falls into *units*, characters alone
and the longest runs of parts of words, each one word whatever stands beside it. Units of up to 31 bytes are
remembered with their ids, in blocks whose places are fetched ahead; others are normalized and cut into
pieces.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, Int64Table, UInt32
from tokmill.tokenizer.jit.intrinsics import (
    BYTES_AT_ONCE,
    bytes_between,
    count_leading_zeros,
    count_trailing_zeros,
)
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    MIDDLE,
    EncodingCache,
    Fetched,
    fetch_ahead,
    recall_middle,
    recall_short,
    remember,
)
from tokmill.tokenizer.kernels.characters import white_space
from tokmill.tokenizer.kernels.forms import (
    ASKS,
    DONE,
    FIRST,
    FULL,
    LEAVES,
    LENGTH_BITS,
    LENGTH_MASK,
    SAME,
    CharacterTables,
    read_strictly,
)
from tokmill.tokenizer.kernels.split import entry
from tokmill.tokenizer.wordpiece.kernels import Pieces, encode_word

__all__ = ["ASKS", "DONE", "FULL", "LEAVES"]

UNKNOWN, WORD, ALONE, SPACE, GONE, MIXED = 0, 1, 2, 3, 4, 5
"""Kinds of characters: nothing is known yet; part of a word; a word; white space; nothing; something else."""

KIND_BITS = 3
_KIND_MASK = 7
MAX_WORD = 1 << 12
"""Bytes of the longest normalized word that is encoded here."""

_BEHIND = 8  # ids that are written at a time, even if there are fewer
_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


class RawTables(NamedTuple):
    """What becomes of characters.

    Attributes:
        kinds: uint8, shape (0x110000,), by code point: its kind + 8 × the bytes of its normalized text,
            white space left out.
        texts: the normalized texts.
        plain: whether ASCII's letters and digits are parts of words, tabs, line ends and spaces are white
            space, and the other visible characters are words, one byte each.
    """

    kinds: Bytes
    texts: CharacterTables
    plain: bool


class Units(NamedTuple):
    """Units of a block; shape (BLOCK,) each.

    Attributes:
        starts: where each begins in the text.
        ends: where it ends.
        sizes: bytes of its normalized text.
    """

    starts: Int64
    ends: Int64
    sizes: Int64


class Memory(NamedTuple):
    """What one thread writes to.

    Attributes:
        cache: ids of units.
        units: of the current block.
        fetched: where they are in the cache.
        word: shape (MAX_WORD + 16,), a normalized word.
        nowhere: shape (0, 2): the places of tokens are not wanted.
    """

    cache: EncodingCache
    units: Units
    fetched: Fetched
    word: Bytes
    nowhere: Int64Table


@kernel(inline=True)
def lowest(number: int) -> np.uint64:
    """Return the lowest bits of a word, at most 64 of them."""
    return _ALL if number >= BYTES_AT_ONCE else (_ONE << np.uint64(number)) - _ONE


@kernel(inline=True)
def plain_units(data: BytesIn, at: int, end: int, units: Units, number: int) -> tuple[int, int]:
    """Add the units of the next ASCII, where letters and digits are parts of words and all else stands alone.

    Returns the number of units, and the place where ASCII, the next 64 bytes or the last whole unit ends.
    """
    size = min(end - at, BYTES_AT_ONCE)
    visible = bytes_between(data, at, 0x21, 0x7E)
    blank = (
        bytes_between(data, at, 0x20, 0x20) | bytes_between(data, at, 9, 10) | bytes_between(data, at, 13, 13)
    )
    words = bytes_between(data, at, 0x30, 0x39) | bytes_between(data, at, 0x61, 0x7A)
    words |= bytes_between(data, at, 0x41, 0x5A)
    others = ~(visible | blank)
    if others & lowest(size) != 0:
        size = np.int64(count_trailing_zeros(others))
    words &= lowest(size)
    if size < end - at and words >> np.uint64(max(size - 1, 0)) != 0:  # the last word may go on
        before = ~words & lowest(size)
        size = 64 - np.int64(count_leading_zeros(before)) if before != 0 else 0
    words &= lowest(size)
    alone = visible & ~words & lowest(size)
    first, last = alone | words & ~(words << _ONE), alone | words & ~(words >> _ONE)
    while first != 0:
        i = np.uint64(number)
        units.starts[i] = at + np.int64(count_trailing_zeros(first))
        units.ends[i] = at + np.int64(count_trailing_zeros(last)) + 1
        first, last = first & (first - _ONE), last & (last - _ONE)
        number += 1
    return number, at + size


@kernel(inline=True)
def add_unit(start: int, end: int, size: int, units: Units, number: int) -> int:
    """Put a unit into the block; return the number of units."""
    i = np.uint64(number)
    units.starts[i], units.ends[i], units.sizes[i] = start, end, size
    return number + 1


@kernel(inline=True)
def end_of_word(
    data: BytesIn, at: int, end: int, size: int, raw: RawTables
) -> tuple[int, int, int, int, int]:
    """Find where a run of parts of words ends, its normalized bytes, and the next character's facts.

    These are its kind and size, its width in bytes, and its code point; the end of the text is white space of
    no width.
    """
    cell, width, point = SPACE, 0, 0
    while at < end:
        point, width = read_strictly(data, at, end)
        cell = entry(raw.kinds, point) if width > 0 else MIXED
        kind = cell & _KIND_MASK
        if kind != WORD and kind != GONE:
            return at, size, cell, width, point
        size += cell >> KIND_BITS
        at += width
    return at, size, SPACE, 0, 0


@kernel(inline=True)
def find_units(data: BytesIn, at: int, end: int, raw: RawTables, units: Units) -> tuple[int, int, int, int]:
    """Find the units from `at` on, as many as there is room for.

    Returns their number; where they end; `DONE`, or `ASKS` or `LEAVES` if they end at a word with a character
    that has no kind yet, or that cannot be dealt with here; and its code point.
    """
    number, why, point = 0, DONE, 0
    while at < end and number < BLOCK - BYTES_AT_ONCE:
        start = at
        if raw.plain and data[np.uint64(at)] < 0x80 and at + BYTES_AT_ONCE <= data.shape[0]:
            known = number
            number, at = plain_units(data, at, end, units, number)
            for unit in range(known, number):
                i = np.uint64(unit)
                units.sizes[i] = units.ends[i] - units.starts[i]
            if at > start:
                continue
        at, size, cell, width, point = end_of_word(data, at, end, 0, raw)
        kind = cell & _KIND_MASK
        if kind in (UNKNOWN, MIXED) or size > MAX_WORD:
            at = start
            why = ASKS if kind == UNKNOWN else LEAVES
            break
        if size > 0:
            number = add_unit(start, at, size, units, number)
        if kind == ALONE:
            number = add_unit(at, at + width, cell >> KIND_BITS, units, number)
        at += width
    return number, at, why, point


@kernel(inline=True)
def normalize_unit(data: BytesIn, at: int, end: int, texts: CharacterTables, word: Bytes) -> int:
    """Write the normalized text of a unit, without its white space; return its number of bytes."""
    size = 0
    while at < end:
        point, width = read_strictly(data, at, end)
        cell = entry(texts.cells, point)
        if cell == SAME:
            for place in range(at, at + width):
                word[size] = data[place]
                size += 1
        else:
            place = (cell - FIRST) >> LENGTH_BITS
            after = place + ((cell - FIRST) & LENGTH_MASK)
            while place < after:
                space = white_space(texts.texts, place, after)
                if space == 0:
                    word[size] = texts.texts[place]
                    size += 1
                place += max(space, 1)
        at += width
    return size


@kernel(inline=True)
def encode_new(
    data: BytesIn, unit: int, raw: RawTables, pieces: Pieces, memory: Memory, ids: UInt32, first: int
) -> tuple[int, int]:
    """Write the ids of a unit, and remember them; return where they end, and the number of unknown bytes."""
    start, end = memory.units.starts[unit], memory.units.ends[unit]
    size = normalize_unit(data, start, end, raw.texts, memory.word)
    number, lost = encode_word(memory.word, np.int64(0), size, pieces, ids, memory.nowhere, first)
    count = number - first
    if count == 1 or lost == 0:  # what is lost of a remembered word is all of it, or nothing
        remember(data, start, end - start, unit, memory.cache, memory.fetched, ids, first, count)
    return number, lost


@kernel(inline=True)
def encode_units(
    data: BytesIn, number: int, raw: RawTables, pieces: Pieces, memory: Memory, ids: UInt32, first: int
) -> tuple[int, int]:
    """Write the ids of a block's units; return where they end, and the number of unknown bytes."""
    units, cache, position, lost = memory.units, memory.cache, first, np.int64(0)
    fetch_ahead(data, units.starts, units.ends, 0, number, cache, memory.fetched)
    for unit in range(number):
        i = np.uint64(unit)
        place, count = memory.fetched.places[i], np.int64(0)
        if place >= 0:
            low, high = memory.fetched.lows[i], memory.fetched.highs[i]
            count = recall_short(cache, place, low, high, ids, position)
        elif place <= MIDDLE:
            start = units.starts[i]
            count = recall_middle(cache, MIDDLE - place, data, start, units.ends[i] - start, ids, position)
        if count == 0:
            position, missed = encode_new(data, unit, raw, pieces, memory, ids, position)
            lost += missed
        else:
            if count == 1 and ids[np.uint64(position)] == pieces.unknown:
                lost += units.sizes[i]
            position += count
    return position, lost


@kernel
def encode_raw(
    data: BytesIn,
    bounds: Int64In,
    kinds: Int64In,
    raw: RawTables,
    pieces: Pieces,
    memory: Memory,
    ids: UInt32,
    id_ends: Int64,
    sizes: Int64,
    lost_bytes: Int64,
    state: Int64,
) -> int:
    """Write the ids of some segments, and the bytes of their normalized words, from the place in `state` on.

    Returns `DONE`, `FULL` (no room for the next ids), `ASKS` for the kind of the character in `state`, or
    `LEAVES` if this text has to be encoded otherwise. After `FULL` and `ASKS`, another call goes on.
    """
    segment, at, number, why = state[0], state[1], state[2], np.int64(DONE)
    while segment < kinds.shape[0] and why == DONE:
        end = bounds[segment + 1]
        if kinds[segment] >= 0:
            if number + _BEHIND > ids.shape[0]:
                why = np.int64(FULL)
                break
            ids[number] = np.uint32(kinds[segment])
            number += 1
            sizes[segment] = end - at
            lost_bytes[segment] = end - at if kinds[segment] == pieces.unknown else 0
            at = end
        while at < end and why == DONE:
            count, after, stopped, point = find_units(data, at, end, raw, memory.units)
            total = np.int64(0)
            for unit in range(count):
                total += memory.units.sizes[np.uint64(unit)]
            if number + total + _BEHIND > ids.shape[0]:
                why = np.int64(FULL)
                break
            number, missed = encode_units(data, count, raw, pieces, memory, ids, number)
            sizes[segment] += total
            lost_bytes[segment] += missed
            state[3] = point
            at, why = after, np.int64(stopped)
        if why == DONE:
            segment += 1
            id_ends[segment] = number
    state[0], state[1], state[2] = segment, at, number
    return why
