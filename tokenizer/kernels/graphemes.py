"""Grapheme clusters: what a reader takes for one character, such as a letter with its marks.

Rules GB3 to GB13 of Unicode Standard Annex 29, with those for conjuncts (GB9c), by a table of what each
character does; `components.steps` makes it.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn
from tokmill.tokenizer.kernels.characters import read_character

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
