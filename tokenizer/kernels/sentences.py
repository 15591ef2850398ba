"""Normalize text as SentencePiece does: by a table of rules, and by what becomes of white space.

At each place the longest rule is applied. The table is a double array: from the state `s`, a byte `b` leads
to the state `s ^ b`, if the unit there has the label `b`. Every unit that is read is checked to be in the
array, since tables come from files. Source of the layout: Yata's darts-clone.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt32
from tokmill.tokenizer.kernels.tries import Trie, longest_at

PREFIX, REMOVE_EXTRA, ESCAPE, SUFFIX = 1, 2, 4, 8
"""What becomes of white space, as bits of `Rules.spaces`: a space is put before the text; spaces at both
ends, and all but one of several, are removed; spaces become U+2581; a space is put after the text."""

_SPACE = 0x20
_MARK = np.array([0xE2, 0x96, 0x81], np.uint8)
_REPLACEMENT = np.array([0xEF, 0xBF, 0xBD], np.uint8)
_LABEL, _VALUE = 0x800000FF, 0x7FFFFFFF
_IN_DATA, _IN_TEXTS, _REPLACED = 0, 1, 2
_CONTINUES, _TOP_TWO = 0x80, 0xC0


class Rules(NamedTuple):
    """How sentences are normalized; only read.

    Attributes:
        units: the double array; empty if no character changes.
        texts: what rules put in the place of characters, each text with a zero byte after it.
        kept: the strings that stay as they are, before any rule.
        spaces: see PREFIX, REMOVE_EXTRA, ESCAPE, SUFFIX.
        plain: shape (256,); 1 for an ASCII character that stays as it is if another, or nothing, follows: no
            kept string begins with it, and no rule that its first two bytes do not rule out.
    """

    units: UInt32
    texts: Bytes
    kept: Trie
    spaces: int
    plain: Bytes


class Part(NamedTuple):
    """What becomes of the next characters.

    Attributes:
        where: _IN_DATA, _IN_TEXTS or _REPLACED.
        start: the first byte there.
        end: the byte after the last one.
        after: where the next characters begin in the text.
    """

    where: int
    start: int
    end: int
    after: int


@kernel(inline=True)
def offset_of(unit: int) -> int:
    """Return what a state differs by from those that its bytes lead to."""
    return (unit >> 10) << ((unit & 0x200) >> 6)


@kernel(inline=True)
def find_rule(data: BytesIn, at: int, end: int, units: UInt32, longest: bool) -> tuple[int, int]:
    """Return where the longest rule at a place ends, or the shortest, and where its text begins, or -1."""
    after, value = at, np.int64(-1)
    if units.shape[0] == 0:
        return after, value
    state = offset_of(np.int64(units[0]))
    for i in range(at, end):
        byte = np.int64(data[i])
        state ^= byte
        if state >= units.shape[0] or (byte == 0 and not longest):
            break
        unit = np.int64(units[state])
        if unit & _LABEL != byte:
            break
        state ^= offset_of(unit)
        if unit >> 8 & 1 and state < units.shape[0]:
            after, value = i + 1, np.int64(units[state]) & _VALUE
            if not longest:
                break
    return after, value


@kernel(inline=True)
def text_of_rule(texts: Bytes, value: int) -> tuple[int, int]:
    """Return where the text of a rule begins and ends."""
    first = min(value, texts.shape[0])
    last = first
    while last < texts.shape[0] and texts[last] != 0:
        last += 1
    return first, last


@kernel(inline=True)
def is_plain(data: BytesIn, at: int, end: int, plain: Bytes) -> bool:
    """Say whether the character at a place is known to stay as it is; False says nothing."""
    return plain[data[np.uint64(at)]] != 0 and (at + 1 >= end or data[np.uint64(at + 1)] < 0x80)


@kernel(inline=True)
def character_end(data: BytesIn, at: int, end: int) -> int:
    """Return where the character at `at` ends; `at` itself if its bytes are not UTF-8."""
    first = np.int64(data[at])
    if first < 0x80:
        return at + 1
    size = 2 + (first >= 0xE0) + (first >= 0xF0)
    if first < 0xC2 or first > 0xF4 or at + size > end:
        return at
    for i in range(at + 1, at + size):
        if data[i] & _TOP_TWO != _CONTINUES:
            return at
    second = np.int64(data[at + 1])
    too_long = (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
    no_character = (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F)
    return at if too_long or no_character else at + size


@kernel(inline=True)
def next_part(data: BytesIn, at: int, end: int, rules: Rules) -> Part:
    """Find out what becomes of the characters at a place: a kept string, a rule, or they stay as they are."""
    if is_plain(data, at, end, rules.plain):
        return Part(_IN_DATA, at, at + 1, at + 1)
    kept, token = longest_at(data, at, end, rules.kept)
    if token >= 0:
        return Part(_IN_DATA, at, kept, kept)
    after, value = find_rule(data, at, end, rules.units, True)
    if value >= 0:
        first, last = text_of_rule(rules.texts, value)
        return Part(_IN_TEXTS, first, last, after)
    after = character_end(data, at, end)
    if after == at:
        return Part(_REPLACED, 0, 3, at + 1)
    return Part(_IN_DATA, at, after, after)


@kernel(inline=True)
def byte_of(data: BytesIn, texts: Bytes, where: int, place: int) -> int:
    """Return one byte of a part."""
    if where == _IN_DATA:
        return np.int64(data[place])
    if where == _IN_TEXTS:
        return np.int64(texts[place])
    return np.int64(_REPLACEMENT[place])


@kernel(inline=True)
def put_space(spaces: int, out: Bytes, at: int) -> int:
    """Write a space; return where the next byte goes. What has no room is left out, but counted."""
    if not spaces & ESCAPE:
        if at < out.shape[0]:
            out[at] = _SPACE
        return at + 1
    for i in range(3):
        if at + i < out.shape[0]:
            out[at + i] = _MARK[i]
    return at + 3


@kernel(inline=True)
def put_part(data: BytesIn, part: Part, begin: int, rules: Rules, out: Bytes, at: int) -> int:
    """Write a part from one of its bytes on; return where the next byte goes."""
    for i in range(begin, part.end):
        byte = byte_of(data, rules.texts, part.where, i)
        if byte == _SPACE:
            at = put_space(rules.spaces, out, at)
            continue
        if at < out.shape[0]:
            out[at] = byte
        at += 1
    return at


@kernel(inline=True)
def without_last_spaces(spaces: int, out: Bytes, first: int, at: int) -> int:
    """Return where the text that begins at `first` ends without its last spaces."""
    if spaces & ESCAPE:
        while (
            at - first >= 3
            and out[at - 3] == _MARK[0]
            and out[at - 2] == _MARK[1]
            and out[at - 1] == _MARK[2]
        ):
            at -= 3
    else:
        while at > first and out[at - 1] == _SPACE:
            at -= 1
    return at


@kernel(inline=True)
def normalize_sentence(data: BytesIn, at: int, end: int, rules: Rules, out: Bytes, to: int) -> int:
    """Write the normalized form of one text; return where it ends. See `put_space` for missing room."""
    spaces, first = rules.spaces, to
    while spaces & REMOVE_EXTRA and at < end:
        part = next_part(data, at, end, rules)
        if part.end - part.start != 1 or byte_of(data, rules.texts, part.where, part.start) != _SPACE:
            break
        at = part.after
    if at >= end:
        return to
    if spaces & PREFIX:
        to = put_space(spaces, out, to)
    after_space = spaces & REMOVE_EXTRA != 0
    while at < end:
        while at < end and to < out.shape[0] and data[np.uint64(at)] != _SPACE:
            if not is_plain(data, at, end, rules.plain):
                break
            out[np.uint64(to)] = data[np.uint64(at)]
            at, to, after_space = at + 1, to + 1, False
        if at >= end:
            break
        part = next_part(data, at, end, rules)
        begin = part.start
        while after_space and begin < part.end and byte_of(data, rules.texts, part.where, begin) == _SPACE:
            begin += 1
        to = put_part(data, part, begin, rules, out, to)
        if begin < part.end:
            last = byte_of(data, rules.texts, part.where, part.end - 1)
            after_space = spaces & REMOVE_EXTRA != 0 and last == _SPACE
        at = part.after
    if spaces & REMOVE_EXTRA and to <= out.shape[0]:
        to = without_last_spaces(spaces, out, first, to)
    return put_space(spaces, out, to) if spaces & SUFFIX else to


@kernel
def normalize_sentences(
    data: BytesIn, offsets: Int64In, keep: BytesIn, rules: Rules, out: Bytes, out_offsets: Int64
) -> int:
    """Normalize texts; return how many bytes they have then."""
    to = 0
    for i in range(offsets.shape[0] - 1):
        out_offsets[i] = to
        if keep[i] == 0:
            to = normalize_sentence(data, offsets[i], offsets[i + 1], rules, out, to)
            continue
        for k in range(offsets[i], offsets[i + 1]):
            if to < out.shape[0]:
                out[to] = data[k]
            to += 1
    out_offsets[offsets.shape[0] - 1] = to
    return to
