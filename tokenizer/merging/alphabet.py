"""The characters that words begin with, and those that continue them, with the words in terms of them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.kernels.joining import Cells

_MAX_COUNT = np.iinfo(np.int64).max
_CONTINUING = np.uint64(1 << 40)
_LENGTH_SHIFT = np.uint64(32)


@dataclass(frozen=True)
class Alphabet:
    """Characters as pieces, and words as cells of them.

    Attributes:
        pieces: the characters, the most frequent first, ties by bytes; `continues` included.
        frequencies: int64, how often each occurs in the cells.
        cells: the words that the pieces can spell.
        continues: what stands before a piece that does not begin a word.
    """

    pieces: list[bytes]
    frequencies: NDArray[np.int64]
    cells: Cells
    continues: bytes

    @classmethod
    def of(cls, words: PretokenCounts, number: int, forbidden: Collection[bytes], continues: bytes) -> Self:
        """Find the characters of words.

        Args:
            words: how often each word occurs.
            number: the most characters; rarer ones, and words that contain them, are left out.
            forbidden: bytes that no piece may have.
            continues: see `Alphabet`; without it, a character is the same piece wherever it stands.

        Raises:
            TrainingError: the sum of counts exceeds int64.
        """
        starts, word = _characters(words)
        if float(words.counts.sum(dtype=np.float64)) * 1.0 > _MAX_COUNT or (
            float((words.counts.astype(np.float64) * np.diff(words.offsets)).sum()) > _MAX_COUNT / 2
        ):
            raise TrainingError(
                "train: the counts of characters add up to more than 2^62; divide all counts by 1000"
            )
        keys = _keys(words, starts, word)
        if not continues:
            keys &= ~_CONTINUING
        distinct, which = np.unique(keys, return_inverse=True)
        weights = words.counts[word].astype(np.int64)
        totals = _sums(which, weights, distinct.shape[0])
        spelled = [_piece(int(key), continues) for key in distinct]
        order = sorted(range(len(spelled)), key=lambda i: (-int(totals[i]), spelled[i]))
        chosen = [i for i in order if spelled[i] not in forbidden][:number]
        symbol_of = np.full(len(spelled), -1, np.int32)
        symbol_of[chosen] = np.arange(len(chosen))
        cells = _cells(symbol_of[which], word, weights)
        frequencies = _sums(cells.symbol, cells.weight, len(chosen))
        return cls([spelled[i] for i in chosen], frequencies, cells, continues)


def _characters(words: PretokenCounts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each character begins, at most four bytes long, and the word that it belongs to."""
    data, firsts = words.data, words.offsets[:-1][np.diff(words.offsets) > 0]
    begins = (data & 0xC0) != 0x80
    begins[firsts] = True
    for _ in range(3):  # a byte that continues nothing, or more than three, is a character of its own
        since = np.arange(data.shape[0]) - np.maximum.accumulate(
            np.where(begins, np.arange(data.shape[0]), -1)
        )
        begins |= since >= 4
    starts = np.flatnonzero(begins)
    return starts, np.searchsorted(words.offsets, starts, side="right") - 1


def _keys(words: PretokenCounts, starts: NDArray[np.int64], word: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each character: its bytes, its length, and whether it continues a word."""
    padded = np.append(words.data, np.zeros(4, np.uint8)).astype(np.uint64)
    lengths = np.append(starts[1:], words.data.shape[0]) - starts
    keys = np.minimum(lengths, 4).astype(np.uint64) << _LENGTH_SHIFT
    for place in range(4):
        keys |= np.where(lengths > place, padded[starts + place], np.uint64(0)) << np.uint64(8 * place)
    return np.where(starts == words.offsets[word], keys, keys | _CONTINUING)


def _piece(key: int, continues: bytes) -> bytes:
    """Return the piece of a character's number."""
    length = key >> int(_LENGTH_SHIFT) & 0xFF
    text = (key & 0xFFFFFFFF).to_bytes(4, "little")[:length]
    return continues + text if key >= int(_CONTINUING) else text


def _sums(which: NDArray[np.integer], weights: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Add weights up, exactly."""
    sums = np.zeros(number, np.int64)
    np.add.at(sums, which, weights)
    return sums


def _cells(symbols: NDArray[np.int32], word: NDArray[np.int64], weights: NDArray[np.int64]) -> Cells:
    """Chain the characters of each word that has all of them; the cells of others are left out."""
    broken = np.unique(word[symbols < 0])
    kept = ~np.isin(word, broken)
    symbols, word, weights = symbols[kept], word[kept], weights[kept]
    number = np.arange(symbols.shape[0], dtype=np.int32)
    same = word[1:] == word[:-1]
    before, after = np.full((2, symbols.shape[0]), -1, np.int32)
    before[1:][same] = number[:-1][same]
    after[:-1][same] = number[1:][same]
    return Cells(symbols.copy(), before, after, weights.copy())
