"""Which strings may be pieces when training on whole sentences.

The rules are those of sentencepiece's trainer, options included; `PieceRules.allows` is their plain form. No
piece lies across certain places (`parts`), whatever stands around them, so words are cut there first.
Scripts are sentencepiece's: Hiragana, Katakana and the long vowel mark count as Han, and characters without a
script are Common; the tables are those of `regex`, which know newer characters.

Source: `TrainerInterface::IsValidSentencePiece`.
"""

from dataclasses import dataclass
from functools import lru_cache

import regex

from tokmill.tokenizer.splitting.patterns import SCRIPTS

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


MARK = "▁"
NEVER = frozenset("\0 \u2585")
"""Characters of no piece: sentencepiece has other uses for them."""

_TAB = "\t"  # for which it has one, too, but which is a piece by itself

_DIGITS = frozenset("0123456789０１２３４５６７８９")


@dataclass(frozen=True, kw_only=True)
class PieceRules:
    """Rules for pieces.

    Attributes:
        longest: the most characters.
        split_by_unicode_script: whether a piece has characters of one script only. One that is inherited has
            that of the character before.
        split_by_number: whether digits have a script like other characters, or any.
        split_by_whitespace: whether `▁` may only begin a piece, or stand within it, too.
        split_digits: whether a digit is a piece of its own.
        allow_whitespace_only_pieces: whether several `▁` may be a piece.
        treat_whitespace_as_suffix: whether `▁` may end a piece, where it may else begin one.
    """

    longest: int = 16
    split_by_unicode_script: bool = True
    split_by_number: bool = True
    split_by_whitespace: bool = True
    split_digits: bool = False
    allow_whitespace_only_pieces: bool = False
    treat_whitespace_as_suffix: bool = False

    def allows(self, text: str) -> bool:
        """Whether a string may be a piece."""
        if not 0 < len(text) <= self.longest or not NEVER.isdisjoint(text):
            return False
        if len(text) > 1 and (_TAB in text or (self.split_digits and not _DIGITS.isdisjoint(text))):
            return False
        return self._allows_marks(text) and self._has_one_script(text)

    def _allows_marks(self, text: str) -> bool:
        others, end = (text[:-1], text[0]) if self.treat_whitespace_as_suffix else (text[1:], text[-1])
        if MARK not in others or (self.allow_whitespace_only_pieces and not text.strip(MARK)):
            return True
        return not self.split_by_whitespace and end != MARK

    def _has_one_script(self, text: str) -> bool:
        if not self.split_by_unicode_script:
            return True
        before = ""
        for character in text:
            if character == MARK:
                continue
            script = self.script(character)
            script = before if script == INHERITED else script
            if script and before and script != before:
                return False
            before = script
        return True

    def script(self, character: str) -> str:
        """Return the script of a character; nothing for one that goes with every script."""
        if not self.split_by_number and character in _DIGITS:
            return ""
        return script_of(character)

    def kind(self, character: str) -> str:
        """Return what decides whether words are cut next to a character; see `parts`."""
        if character == MARK:
            return MARK
        if character == _TAB or (self.split_digits and character in _DIGITS):
            return "0"
        script = self.script(character) if self.split_by_unicode_script else ""
        return "" if script == INHERITED else script

    @staticmethod
    def parts(kind: str, after: str) -> bool:
        """Whether no piece lies across two neighbours of some kinds."""
        if "0" in (kind, after):
            return True
        return kind != after and "" not in (kind, after) and MARK not in (kind, after)
