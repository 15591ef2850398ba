"""Grapheme clusters, and SentencePiece's rules as Hugging Face's tokenizers apply them: by clusters.

Clusters are those of GB3 to GB13 of Unicode Standard Annex 29, with GB9c. A cluster of less than six bytes
that begins with a string that has a rule becomes the text of the shortest such string, and its rest is lost;
so does each character of other clusters. Source: `Precompiled` in Hugging Face's tokenizers, and its crate
spm_precompiled.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt32
from tokmill.tokenizer.kernels.characters import read_character
from tokmill.tokenizer.kernels.sentences import find_rule, text_of_rule

OTHER, CR, LF, CONTROL, EXTEND, ZWJ, FLAG, PREPEND, SPACING, L, V, T, LV, LVT, PICTURE = range(15)
"""What a character does at the bounds of clusters: the low four bits of its entry in the table."""

CONSONANT, LINKER, LINKED = 16, 32, 64
"""What it does in conjuncts, as bits beside that: the values of the property InCB, `LINKED` for Extend."""

_CLASS = 15


@kernel(inline=True)
def joins_hangul(before: int, here: int) -> bool:
    """Whether two parts of a Hangul syllable belong together."""
    if before == L:
        return here in (L, V, LV, LVT)
    if before in (LV, V):
        return here in (V, T)
    return before in (LVT, T) and here == T


@kernel(inline=True)
def entry_of(data: BytesIn, at: int, end: int, classes: Bytes) -> tuple[int, int]:
    """Return what the character at a place does, and where it ends; bytes that are not UTF-8 stand alone."""
    point, after = read_character(data, at, end)
    return (np.int64(classes[point]) if point >= 0 else np.int64(CONTROL)), np.int64(after)


@kernel(inline=True)
def cluster_end(data: BytesIn, at: int, end: int, classes: Bytes) -> int:
    """Return where the cluster that begins at `at` ends."""
    entry, place = entry_of(data, at, end, classes)
    before, flags = entry & _CLASS, np.int64(entry & _CLASS == FLAG)
    picture, conjunct = np.int64(before == PICTURE), np.int64(entry & CONSONANT != 0)
    while place < end:
        entry, after = entry_of(data, place, end, classes)
        here = entry & _CLASS
        if before == CR and here == LF:
            return after
        if 0 < before <= CONTROL or 0 < here <= CONTROL:
            break
        if not (
            here in (EXTEND, ZWJ, SPACING)
            or before == PREPEND
            or joins_hangul(before, here)
            or (conjunct == 2 and entry & CONSONANT)
            or (picture == 2 and here == PICTURE)
            or (here == FLAG and flags & 1)
        ):
            break
        if entry & (CONSONANT | LINKER | LINKED) == 0:
            conjunct = 0
        elif entry & CONSONANT:
            conjunct = 1
        elif entry & LINKER and conjunct > 0:
            conjunct = 2
        picture = next_picture(picture, here)
        flags = flags + 1 if here == FLAG else 0
        before, place = here, after
    return place


@kernel(inline=True)
def next_picture(picture: int, here: int) -> int:
    """Return 1 after a picture and what extends it, 2 after a joiner behind those, and 0 elsewhere."""
    if here == PICTURE:
        return 1
    if picture == 1 and here == ZWJ:
        return 2
    return 1 if picture >= 1 and here == EXTEND else 0


_LONG = 6
_ASCII_END, _CARRIAGE_RETURN = 0x80, 0x0D


class ClusterRules(NamedTuple):
    """A table of rules, and the bounds of clusters; only read.

    Attributes:
        units: the double array.
        texts: what rules put in the place of characters, each text with a zero byte after it.
        classes: shape (0x110000,), see `kernels.graphemes`.
        plain: shape (128,), 1 for each ASCII character that no rule changes.
    """

    units: UInt32
    texts: Bytes
    classes: Bytes
    plain: Bytes


@kernel(inline=True)
def put_text(texts: BytesIn, start: int, end: int, out: Bytes, at: int) -> int:
    """Write bytes; return where the next one goes. What has no room is left out, but counted."""
    for i in range(start, end):
        if at < out.shape[0]:
            out[at] = texts[i]
        at += 1
    return at


@kernel(inline=True)
def put_changed(data: BytesIn, start: int, end: int, rules: ClusterRules, out: Bytes, at: int) -> int:
    """Write the text of the rule for `data[start:end]`; return where the next byte goes, -1 if none is."""
    _, value = find_rule(data, start, end, rules.units, False)
    if value < 0:
        return -1
    first, last = text_of_rule(rules.texts, value)
    return put_text(rules.texts, first, last, out, at)


@kernel(inline=True)
def put_cluster(data: BytesIn, start: int, end: int, rules: ClusterRules, out: Bytes, at: int) -> int:
    """Write what becomes of a cluster; return where the next byte goes."""
    if end - start < _LONG:
        after = put_changed(data, start, end, rules, out, at)
        if after >= 0:
            return after
    while start < end:
        _, stop = read_character(data, start, end)
        after = put_changed(data, start, stop, rules, out, at)
        at = after if after >= 0 else put_text(data, start, stop, out, at)
        start = stop
    return at


@kernel(inline=True)
def is_plain(data: BytesIn, at: int, end: int, rules: ClusterRules) -> bool:
    """Whether a character is ASCII, is a cluster by itself, and stays."""
    byte = data[at]
    if byte >= _ASCII_END or byte == _CARRIAGE_RETURN or rules.plain[byte] == 0:
        return False
    return at + 1 >= end or data[at + 1] < _ASCII_END


@kernel
def normalize_clusters(
    data: BytesIn, offsets: Int64In, keep: BytesIn, rules: ClusterRules, out: Bytes, out_offsets: Int64
) -> int:
    """Apply rules to texts; return how many bytes they have then."""
    to = 0
    for i in range(offsets.shape[0] - 1):
        out_offsets[i] = to
        at, end = offsets[i], offsets[i + 1]
        if keep[i] != 0:
            to = put_text(data, at, end, out, to)
            continue
        while at < end:
            if is_plain(data, at, end, rules):
                if to < out.shape[0]:
                    out[to] = data[at]
                to += 1
                at += 1
                continue
            after = cluster_end(data, at, end, rules.classes)
            to = put_cluster(data, at, after, rules, out, to)
            at = after
    out_offsets[offsets.shape[0] - 1] = to
    return to
