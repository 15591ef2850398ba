"""The script of a character, as SentencePiece tells them apart.

Hiragana, Katakana and the long vowel mark count as Han. Characters without a script are Common. The tables
are those of the `regex` package, which know newer characters than sentencepiece's.
"""

from functools import lru_cache

import regex

from tokmill.tokenizer.splitting.scripts import SCRIPTS

COMMON, INHERITED, HAN = "Zyyy", "Zinh", "Hani"

_MERGED = {"Hira": HAN, "Kana": HAN}
_LONG_VOWEL_MARK = "ー"


@lru_cache(maxsize=1)
def _known() -> "tuple[list[str], regex.Pattern[str]]":
    """Return the names that the `regex` package knows, and an expression with a group for each."""
    names = [name for name in SCRIPTS if _is_known(name)]
    return names, regex.compile("|".join(rf"(\p{{Script={name}}})" for name in names))


def _is_known(name: str) -> bool:
    try:
        regex.compile(rf"\p{{Script={name}}}")
    except regex.error:  # of an older version
        return False
    return True


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str:
    """Return the script of a character, by its ISO 15924 name."""
    if character == _LONG_VOWEL_MARK:
        return HAN
    names, expression = _known()
    found = expression.match(character)
    name = names[found.lastindex - 1] if found else COMMON
    return _MERGED.get(name, name)
