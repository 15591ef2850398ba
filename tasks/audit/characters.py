"""Properties of the characters of a vocabulary: category, case and script, from one edition of Unicode.

They are found by the `regex` package, whose tables do not depend on the version of Python.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.splitting.syntax import NUM_CODE_POINTS

SCRIPTS = (
    *("Latin", "Cyrillic", "Greek", "Han", "Hiragana", "Katakana", "Hangul", "Arabic", "Hebrew"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam"),
    *("Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Georgian", "Armenian", "Ethiopic", "Khmer"),
    *("Mongolian", "Cherokee", "Bopomofo", "Syriac", "Thaana", "Canadian_Aboriginal", "Ogham", "Runic"),
    *("Tagalog", "Yi", "Braille", "Coptic", "Gothic", "Glagolitic", "Tifinagh", "Javanese", "Balinese"),
    *("Sundanese", "Cham", "Nko", "Vai", "Adlam", "Cuneiform", "Egyptian_Hieroglyphs", "Tai_Le"),
    *("New_Tai_Lue", "Tai_Tham", "Limbu", "Lepcha", "Meetei_Mayek", "Ol_Chiki"),
)
_NAMES = sorted((*SCRIPTS, "Other"))
_SCRIPTS = [rf"\p{{Script={name}}}" for name in SCRIPTS]
_OTHER = rf"[^\p{{Script=Common}}\p{{Script=Inherited}}{''.join(_SCRIPTS)}]"
_CATEGORIES = "LMNPSZC"
_CASED, _UPPER = r"[\p{Lu}\p{Lt}\p{Ll}]", r"[\p{Lu}\p{Lt}]"


class Characters:
    """What is known of the characters of some texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        seen: NDArray[np.bool_] = np.zeros(NUM_CODE_POINTS, np.bool_)
        seen[_codes(texts)] = True
        every = np.flatnonzero(seen).astype("<u4").tobytes().decode("utf-32-le")
        scripts = dict(zip(SCRIPTS, _SCRIPTS, strict=True)) | {"Other": _OTHER}
        self._scripts = _bits([scripts[name] for name in _NAMES], every)
        self._categories = _bits([rf"\p{{{name}}}" for name in _CATEGORIES], every)
        self._cases = _bits([_CASED, _UPPER], every)

    def scripts_of(self, texts: Sequence[str]) -> list[str]:
        """Return the scripts of each text in alphabetical order, joined by `+`; empty if it has none.

        `Other` stands for those that are not in `SCRIPTS`.
        """
        return _joined(_in_texts(self._scripts, texts), _NAMES, "+")

    def categories_of(self, texts: Sequence[str]) -> list[str]:
        """Return the major categories of each text's characters, in the order L, M, N, P, S, Z, C."""
        return _joined(_in_texts(self._categories, texts), _CATEGORIES, "")

    def casing_of(self, texts: Sequence[str]) -> list[str]:
        """Return `lower`, `upper`, `title` (the first letter of several is upper case), `mixed` or `none`."""
        number = len(texts)
        cases = self._cases[_codes(texts)]
        cased, upper = np.flatnonzero(cases), cases[cases > 0] > 1
        of_text = np.repeat(np.arange(number), [*map(len, texts)])[cased]
        letters, uppers = np.bincount(of_text, minlength=number), np.bincount(of_text, upper, number)
        begins = np.append(upper, False)[np.searchsorted(of_text, np.arange(number))]
        found = [letters == 0, uppers == 0, uppers == letters, begins & (uppers == 1)]
        casing: list[str] = np.select(found, ["none", "lower", "upper", "title"], "mixed").tolist()
        return casing


def _codes(texts: Iterable[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")


def _bits(patterns: Sequence[str], characters: str) -> NDArray[np.int64]:
    """Return which patterns match each code point, a bit for each: int64 [0x110000]."""
    found = np.zeros(NUM_CODE_POINTS, np.int64)
    for k, pattern in enumerate(patterns):
        found[_codes(regex.findall(pattern, characters))] |= 1 << k
    return found


def _in_texts(bits: NDArray[np.int64], texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the bits of all characters of each text."""
    lengths = np.array([*map(len, texts)], np.int64)
    every = np.append(bits[_codes(texts)], 0)  # for the start of a last text that is empty
    return np.where(lengths > 0, np.bitwise_or.reduceat(every, np.cumsum(lengths) - lengths), 0)


def _joined(masks: NDArray[np.int64], names: Sequence[str], separator: str) -> list[str]:
    """Return the names of the bits of each mask."""
    distinct, which = np.unique(masks, return_inverse=True)
    said = [
        separator.join(name for k, name in enumerate(names) if mask >> k & 1) for mask in distinct.tolist()
    ]
    return [said[k] for k in which.tolist()]
