"""The table of what characters do at the bounds of grapheme clusters, for `kernels.graphemes`.

It has the values of Unicode 17, as Hugging Face's tokenizers have them; what was assigned later
does nothing there.
"""

from functools import cache

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.kernels import graphemes

_POINTS = 0x110000
_CLASSES = {
    "CR": graphemes.CR,
    "LF": graphemes.LF,
    "Control": graphemes.CONTROL,
    "Extend": graphemes.EXTEND,
    "ZWJ": graphemes.ZWJ,
    "RI": graphemes.FLAG,
    "Prepend": graphemes.PREPEND,
    "SpacingMark": graphemes.SPACING,
    **{name: getattr(graphemes, name) for name in ("L", "V", "T", "LV", "LVT")},
}
_IN_CONJUNCTS = {
    "Consonant": graphemes.CONSONANT,
    "Linker": graphemes.LINKER,
    "Extend": graphemes.LINKED,
}
_LATER = (
    *((0x5C8, 0x5C9), (0xB53, 0xB54), (0x1ADE, 0x1ADF), (0x1AEC, 0x1AF0), (0x10ECB, 0x10ECF)),
    *((0x10EF0, 0x10EF9), (0x11DF0, 0x11DF0), (0x1D127, 0x1D128), (0x1D250, 0x1D252)),
    *((0x1D25B, 0x1D25C), (0x1D25F, 0x1D25F), (0x1D280, 0x1D281)),
)
"""First and last of the marks that newer tables of `regex` have."""

_LATER_LINKERS = (0x1CF5, 0x1CF6, 0x11A3A)
"""Characters that are linkers in newer tables alone."""


@cache
def cluster_classes() -> NDArray[np.uint8]:
    """Return an entry for each character by code point, shape (0x110000,)."""
    text = "".join(map(chr, (point for point in range(_POINTS) if not 0xD800 <= point < 0xE000)))
    table = np.zeros(_POINTS, np.uint8)
    table[0xD800:0xE000] = graphemes.CONTROL
    _mark(table, text, r"\p{Extended_Pictographic}", graphemes.PICTURE)
    for name, number in _CLASSES.items():
        _mark(table, text, rf"\p{{GCB={name}}}", number)
    for name, number in _IN_CONJUNCTS.items():
        _mark(table, text, rf"\p{{InCB={name}}}", number)
    for first, last in _LATER:
        table[first : last + 1] = graphemes.OTHER
    table[[*_LATER_LINKERS]] &= ~np.uint8(graphemes.LINKER)
    return table


def _mark(table: NDArray[np.uint8], text: str, expression: str, number: int) -> None:
    for match in regex.finditer(f"(?:{expression})+", text):
        first, last = ord(text[match.start()]), ord(text[match.end() - 1])
        for point in range(first, last + 1):
            table[point] |= number if not 0xD800 <= point < 0xE000 else 0
