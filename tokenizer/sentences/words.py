"""The words of a training on whole sentences: cut where no piece can lie, with their characters.

Law: a trainer finds in the parts what it would find in whole words. Which strings may be pieces follows
sentencepiece's trainer; `PieceRules.allows` is the plain form. Scripts are sentencepiece's (Hiragana,
Katakana and the long vowel mark count as Han), by the tables of `regex`. Source:
`TrainerInterface::IsValidSentencePiece`.
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import code_points, utf8_alone
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


_NUM_CODE_POINTS = 0x110000
_ANY, _MARK, _ALONE = 0, 1, 2
_BYTES_A_CHUNK = 1 << 20


@dataclass(frozen=True)
class Words:
    """Parts of words.

    Attributes:
        counts: how often each part occurs, in order of their bytes; the parts are UTF-8.
        alphabet: the characters, the most frequent first, of equally frequent ones the least code point.
        frequencies: float64, shape (num_characters,); how often each occurs.
    """

    counts: PretokenCounts
    alphabet: list[bytes]
    frequencies: NDArray[np.float64]


def cut_words(
    counts: PretokenCounts, rules: PieceRules, coverage: float, forbidden: Collection[str]
) -> Words:
    """Choose the alphabet of words, and cut them."""
    counts = utf8_alone(counts)
    frequencies = np.zeros(_NUM_CODE_POINTS)
    for chunk in _chunks(counts):
        weights = chunk.weights.astype(np.float64)[chunk.words]
        frequencies += np.bincount(chunk.codes, weights, _NUM_CODE_POINTS)
    frequencies[[ord(character) for character in NEVER]] = 0
    chosen = _most_frequent(frequencies, coverage)
    alphabet = [code for code in chosen.tolist() if chr(code) not in forbidden]
    kinds = _kinds(alphabet, rules)
    parts = PretokenCounts.merge(_counted(counts, chunk, kinds) for chunk in _chunks(counts))
    return Words(parts, [chr(code).encode() for code in alphabet], frequencies[alphabet])


def _counted(counts: PretokenCounts, chunk: "_Chunk", kinds: NDArray[np.int32]) -> PretokenCounts:
    """Count the parts of some words."""
    starts, ends, weights = chunk.parts(kinds)
    base = int(chunk.starts[0])
    data, bounds = counts.data[base : chunk.starts[-1]].tobytes(), (starts - base, ends - base)
    found = [data[a:b] for a, b in zip(*(bound.tolist() for bound in bounds), strict=True)]
    return PretokenCounts.sorted(*pack_bytes(found), weights)


@dataclass(frozen=True)
class _Chunk:
    """The characters of some words that follow each other.

    Attributes:
        starts: int64, shape (num_characters + 1,); where each begins, and the last one ends.
        codes: int64, shape (num_characters,), their code points.
        words: int64, shape (num_characters,), the word of each, from 0.
        weights: uint64, shape (num_words,), how often each word occurs.
    """

    starts: NDArray[np.int64]
    codes: NDArray[np.int64]
    words: NDArray[np.int64]
    weights: NDArray[np.uint64]

    def parts(
        self, kinds: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Return where the longest parts of kept characters begin and end, and how often each occurs."""
        found = kinds[self.codes]
        one, other = found[:-1], found[1:]
        cut = (one == _ALONE) | (other == _ALONE) | ((one != other) & (one > _ALONE) & (other > _ALONE))
        cut |= (self.words[1:] != self.words[:-1]) | (one < 0) | (other < 0)
        kept = (found >= 0) & (self.weights > 0)[self.words]
        begins, stops = kept & np.append(True, cut), kept & np.append(cut, True)
        return self.starts[:-1][begins], self.starts[1:][stops], self.weights[self.words[begins]]


def _chunks(counts: PretokenCounts) -> Iterator[_Chunk]:
    """Yield words, some at a time, so that the arrays of their characters stay small."""
    offsets = counts.offsets
    wanted = np.arange(_BYTES_A_CHUNK, int(offsets[-1]), _BYTES_A_CHUNK)
    edges = np.unique([0, *np.searchsorted(offsets, wanted).tolist(), len(counts)])
    for first, after in itertools.pairwise(edges.tolist()):
        begin, end = int(offsets[first]), int(offsets[after])
        data = counts.data[begin:end]
        if not data.shape[0]:
            continue
        starts = np.flatnonzero(data & 0xC0 != 0x80)
        words = np.searchsorted(offsets[first : after + 1] - begin, starts, side="right") - 1
        codes = code_points(data, starts)
        yield _Chunk(np.append(starts, end - begin) + begin, codes, words, counts.counts[first:after])


def _most_frequent(frequencies: NDArray[np.float64], coverage: float) -> NDArray[np.int64]:
    """Return the code points that are needed to cover a part of the text, the most frequent first."""
    order = np.argsort(-frequencies, kind="stable")[: np.count_nonzero(frequencies)]
    reached = np.cumsum(frequencies[order])
    before = np.append(np.zeros(1), reached[:-1])
    covered = (before / max(float(reached[-1]), 1.0) if order.shape[0] else before[:0]).astype(np.float32)
    return order[covered < np.float32(coverage)]


def _kinds(alphabet: list[int], rules: PieceRules) -> NDArray[np.int32]:
    """Return a number for the kind of each code point of the alphabet; -1 for all others."""
    numbers = {"": _ANY, MARK: _MARK, "0": _ALONE}
    kinds = np.full(_NUM_CODE_POINTS, -1, np.int32)
    for code in alphabet:
        kinds[code] = numbers.setdefault(rules.kind(chr(code)), len(numbers))
    return kinds
