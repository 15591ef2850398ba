r"""Words by the rules of Unicode (UAX #29), without a dictionary.

A word is what lies between two word boundaries and begins with a letter, a digit or a connector (`_`):
`don't`, `U.S.A`, `1,000.5` and `foo_bar` are one word each, and a run of katakana is. Where the rules have no
boundary of words, because the script puts no spaces between them, every character is a word, with its marks:
in Chinese, the hiragana and kanji of Japanese, Thai, Lao, Khmer and Burmese. So a language's tokens per word
are to be compared with those of other tokenizers on the same language, not with those of other languages.

The rules are one expression over the character property Word_Break, run by our own splitter at its speed. The
one difference: katakana that a connector joins to letters (`カ_a`) is a word of its own.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.splitting.splitter import Splitter
from tokmill.tokenizer.splitting.syntax import code_points

_EXTEND = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_HEBREW = rf"\p{{WB=Hebrew_Letter}}{_EXTEND}"
_QUOTED = rf"(?:\p{{WB=Double_Quote}}{_EXTEND}{_HEBREW})*(?:\p{{WB=Single_Quote}}{_EXTEND})?"
_LETTERS = rf"(?:\p{{WB=ALetter}}{_EXTEND}|{_HEBREW}{_QUOTED})+"
_DIGITS = rf"(?:\p{{WB=Numeric}}{_EXTEND})+"
_CONNECTORS = rf"(?:\p{{WB=ExtendNumLet}}{_EXTEND})+"
_KATAKANA = rf"(?:\p{{WB=Katakana}}{_EXTEND})+"
_IN_WORDS = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_EXTEND}"
_IN_NUMBERS = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_EXTEND}"
WORDS = (
    rf"(?:{_LETTERS}(?:{_IN_WORDS}{_LETTERS})*|{_DIGITS}(?:{_IN_NUMBERS}{_DIGITS})*|{_CONNECTORS})+"
    rf"|{_KATAKANA}|(?s:.){_EXTEND}"
)
"""Cuts text at all word boundaries; what is between two of them need not be a word."""

_BEGINNINGS = r"[\p{L}\p{N}\p{WB=ExtendNumLet}]"
_UNTIL = np.array([0x80, 0xE0, 0xF0], np.uint8)  # lead bytes of characters of two, three and four bytes
_KEPT = np.array([0x7F, 0x1F, 0x0F, 0x07], np.uint32)


@cache
def _splitter() -> Splitter:
    return Splitter(WORDS)


@cache
def _begins_word() -> NDArray[np.bool_]:
    """Whether a word can begin with a character: bool [0x110000]."""
    begins = np.zeros(0x110000, np.bool_)
    for first, end in code_points(_BEGINNINGS, 0).tolist():
        begins[first:end] = True
    return begins


def words_of(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each word begins and ends.

    Args:
        data: uint8 [num_bytes], UTF-8.
        offsets: int64 [num_documents + 1]; words do not cross documents.

    Returns:
        int64 [num_words] each, in bytes.
    """
    parts = _splitter().split(data, offsets)
    starts, ends = np.asarray(parts.starts), np.asarray(parts.ends)
    is_word = _begins_word()[first_characters(data, starts)]
    return starts[is_word], ends[is_word]


def first_characters(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the code points that begin at some places of valid UTF-8: int64 [n]."""
    padded = np.append(data, np.zeros(3, np.uint8))
    lead = padded[starts]
    following = np.searchsorted(_UNTIL, lead, side="right")
    following -= (lead >= 0x80) & (lead < 0xC0) & (following > 0)
    points = lead & _KEPT[following]
    for place in range(1, 4):
        rest = padded[np.minimum(starts + place, len(padded) - 1)] & np.uint32(0x3F)
        points = np.where(following >= place, points << np.uint32(6) | rest, points)
    return np.minimum(points.astype(np.int64), 0x10FFFF)
