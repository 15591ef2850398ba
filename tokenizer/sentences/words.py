"""The words of a training on whole sentences: cut where no piece can lie, with their characters.

Law: what a trainer finds in the parts is what it would find in the whole words, since no piece has a
character that is left out, or lies across a place where a word is cut (`rules.PieceRules.parts`).
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import code_points, utf8_alone
from tokmill.tokenizer.sentences.rules import MARK, NEVER, PieceRules

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
