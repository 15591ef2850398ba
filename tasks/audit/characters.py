"""Properties of the characters of a vocabulary: category, case and script, from one edition of Unicode.

They are found by the `regex` package, whose tables do not depend on the version of Python.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import regex

SCRIPTS = (
    *("Latin", "Cyrillic", "Greek", "Han", "Hiragana", "Katakana", "Hangul", "Arabic", "Hebrew"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam"),
    *("Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Georgian", "Armenian", "Ethiopic", "Khmer"),
    *("Mongolian", "Cherokee", "Bopomofo", "Syriac", "Thaana", "Canadian_Aboriginal", "Ogham", "Runic"),
    *("Tagalog", "Yi", "Braille", "Coptic", "Gothic", "Glagolitic", "Tifinagh", "Javanese", "Balinese"),
    *("Sundanese", "Cham", "Nko", "Vai", "Adlam", "Cuneiform", "Egyptian_Hieroglyphs", "Tai_Le"),
    *("New_Tai_Lue", "Tai_Tham", "Limbu", "Lepcha", "Meetei_Mayek", "Ol_Chiki"),
)
_NO_SCRIPT = ("Common", "Inherited")
_CATEGORIES = "LMNPSZC"
_CASES = {"upper": r"[\p{Lu}\p{Lt}]", "lower": r"\p{Ll}"}


@dataclass(frozen=True)
class Characters:
    """What is known of some characters.

    Attributes:
        categories: major category of each: L, M, N, P, S, Z or C.
        cases: `upper` or `lower` of each that has a case.
        scripts: the script of each that has one; `Other` if it is not in `SCRIPTS`.
    """

    categories: dict[str, str]
    cases: dict[str, str]
    scripts: dict[str, str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Characters":
        """Look up the characters of some texts."""
        every = "".join(sorted(set().union(*texts)))
        known = {s: name for name in SCRIPTS for s in _matching(rf"\p{{Script={name}}}", every)}
        no_script = {s for name in _NO_SCRIPT for s in _matching(rf"\p{{Script={name}}}", every)}
        return cls(
            {s: name for name in _CATEGORIES for s in _matching(rf"\p{{{name}}}", every)},
            {s: name for name, pattern in _CASES.items() for s in _matching(pattern, every)},
            {s: known.get(s, "Other") for s in every if s not in no_script},
        )

    def scripts_of(self, text: str) -> str:
        """Return the scripts of a text in alphabetical order, joined by `+`; empty if it has none."""
        return "+".join(sorted({self.scripts[s] for s in text if s in self.scripts}))

    def categories_of(self, text: str) -> str:
        """Return the major categories of a text's characters, in the order L, M, N, P, S, Z, C."""
        found = {*map(self.categories.__getitem__, text)}
        return "".join(sorted(found, key=_CATEGORIES.index))

    def casing_of(self, text: str) -> str:
        """Return `lower`, `upper`, `title` (the first letter of several is upper case), `mixed` or `none`."""
        cases = [self.cases[s] for s in text if s in self.cases]
        if not cases:
            return "none"
        if len(set(cases)) == 1:
            return cases[0]
        return "title" if cases[0] == "upper" and set(cases[1:]) == {"lower"} else "mixed"


def _matching(pattern: str, characters: str) -> Iterable[str]:
    return regex.findall(pattern, characters)  # type: ignore[no-any-return]
