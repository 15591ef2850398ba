"""The words of a training on whole sentences: cut where no piece can lie, with their characters.

Law: what a trainer finds in the parts is what it would find in the whole words, since no piece has a
character that is left out, or lies across a place where a word is cut (`rules.PieceRules.parts`).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.characters import code_points, utf8_alone
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.sentences.rules import MARK, NEVER, PieceRules

_NUM_CODE_POINTS = 0x110000
_ANY, _MARK, _ALONE = 0, 1, 2


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
    """Choose the alphabet of words, and cut them.

    Args:
        counts: how often each word occurs, in any order; words that are not UTF-8 are left out.
        rules: which strings may be pieces.
        coverage: the part of all characters, by frequency, that have pieces; compared as 32-bit numbers, as
            sentencepiece does.
        forbidden: strings that are no pieces.
    """
    counts = utf8_alone(counts)
    starts = np.flatnonzero(counts.data & 0xC0 != 0x80)
    codes = code_points(counts.data, starts)
    words = np.searchsorted(counts.offsets, starts, side="right") - 1
    weights = counts.counts.astype(np.float64)[words]
    frequencies = np.bincount(codes, weights, _NUM_CODE_POINTS).astype(np.float64, copy=False)
    frequencies[[ord(character) for character in NEVER]] = 0
    chosen = _most_frequent(frequencies, coverage)
    alphabet = [code for code in chosen.tolist() if chr(code) not in forbidden]
    kinds = _kinds(alphabet, rules)
    kept = kinds[codes] >= 0
    parts = _between(codes, words, kinds)
    return Words(
        _cut(counts, starts, words, kept, parts),
        [chr(code).encode() for code in alphabet],
        frequencies[alphabet],
    )


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


def _between(
    codes: NDArray[np.int64], words: NDArray[np.int64], kinds: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return whether a word is cut before each character; see `PieceRules.parts`."""
    one, other = kinds[codes[:-1]], kinds[codes[1:]]
    parts = (one == _ALONE) | (other == _ALONE) | ((one != other) & (one > _ALONE) & (other > _ALONE))
    return np.append(np.ones(min(codes.shape[0], 1), np.bool_), parts | (words[1:] != words[:-1]))


def _cut(
    counts: PretokenCounts,
    starts: NDArray[np.int64],
    words: NDArray[np.int64],
    kept: NDArray[np.bool_],
    parts: NDArray[np.bool_],
) -> PretokenCounts:
    """Return the longest parts that have kept characters alone, with their counts."""
    ends = np.append(starts[1:], counts.data.shape[0])
    begins = kept & (parts | ~np.append(False, kept[:-1]))
    stops = kept & (np.append(parts[1:], True) | ~np.append(kept[1:], False))
    occurs = (counts.counts > 0)[words]
    begins, stops = begins & occurs, stops & occurs
    data = counts.data.tobytes()
    found = [data[a:b] for a, b in zip(starts[begins].tolist(), ends[stops].tolist(), strict=True)]
    return PretokenCounts.sorted(*pack_bytes(found), counts.counts[words[begins]])
