"""What decides which pairs `trainer` joins, and the characters that it begins with."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.kernels.joining import FREQUENCY, GREATEST_PAIR, LIKELIHOOD, LOWEST_SYMBOLS
from tokmill.tokenizer.kernels.pair_table import Cells
from tokmill.tokenizer.pipeline.options import TieBreak

_TIES = {"lexicographic_max": GREATEST_PAIR, "lowest_ids": LOWEST_SYMBOLS, "first_seen": LOWEST_SYMBOLS}


class Marks(NamedTuple):
    """What tells a character's place in its word.

    Attributes:
        continues: stands before the piece of a character that does not begin a word.
        ends: stands after the piece of a character that ends a word.
        apart: whether `ends` is a piece of its own, after the last character.
        by_bytes: whether each byte is taken for a character.
    """

    continues: bytes = b""
    ends: bytes = b""
    apart: bool = False
    by_bytes: bool = False


_UNMARKED = Marks()


@dataclass(frozen=True, kw_only=True)
class JoinRules:
    """Rules of a training by joining pairs.

    Attributes:
        score: `likelihood` or `frequency`; see `trainer`.
        marks: how the place of a character in its word is marked.
        tie_break: by frequency: which of equally frequent pairs comes first, by ADR 5; None for the ties of
            `trainer`.
        min_frequency: pairs that occur less often are not joined.
        max_token_bytes: longer pieces are not made, marks not counted.
        forbidden: bytes that no piece may have.
        allows: whether a joined piece may be made; None if all may be.
        shorter_first: of equally frequent pairs that whose piece has fewer characters comes first.
        join_again: whether a pair is joined if another one has made the same piece.
    """

    score: str = "likelihood"
    marks: Marks = _UNMARKED
    tie_break: TieBreak | None = None
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Collection[bytes] = ()
    allows: Callable[[bytes], bool] | None = None
    shorter_first: bool = False
    join_again: bool = True

    @property
    def order(self) -> int:
        """The rule of `kernels.joining` for which pair comes first."""
        if self.tie_break is not None:
            return _TIES[self.tie_break]
        return LIKELIHOOD if self.score == "likelihood" else FREQUENCY

    @property
    def by_place(self) -> bool:
        """Whether the pair that occurs first is the first of equally frequent ones."""
        return self.tie_break == "first_seen"

    def takes(self, joined: bytes) -> bool:
        """Whether a piece may be made, as far as its bytes decide that."""
        length = len(joined.removeprefix(self.marks.continues).removesuffix(self.marks.ends))
        if joined in self.forbidden or (self.max_token_bytes is not None and length > self.max_token_bytes):
            return False
        return self.allows is None or self.allows(joined)


_MAX_COUNT = np.iinfo(np.int64).max
_CONTINUING, _ENDING = np.uint64(1 << 40), np.uint64(1 << 41)
_LENGTH_SHIFT = np.uint64(32)


@dataclass(frozen=True)
class Alphabet:
    """Characters as pieces, and words as cells of them.

    Attributes:
        pieces: the characters, the most frequent first, ties by bytes; marks included.
        frequencies: int64, how often each occurs in the cells.
        cells: the words that the pieces can spell.
        marks: see `Marks`.
    """

    pieces: list[bytes]
    frequencies: NDArray[np.int64]
    cells: Cells
    marks: Marks

    @classmethod
    def of(
        cls,
        words: PretokenCounts,
        number: int,
        forbidden: Collection[bytes],
        marks: Marks,
        always: Sequence[bytes] = (),
    ) -> Self:
        """Find the characters of words."""
        if marks.apart:
            words = _with_room(words)
        starts, word = _characters(words, marks.by_bytes)
        if float(words.counts.sum(dtype=np.float64)) * 1.0 > _MAX_COUNT or (
            float((words.counts.astype(np.float64) * np.diff(words.offsets)).sum()) > _MAX_COUNT / 2
        ):
            raise TrainingError(
                "train: the counts of characters add up to more than 2^62; divide all counts by 1000"
            )
        keys = _keys(words, starts, word, marks)
        distinct, which = np.unique(keys, return_inverse=True)
        weights = words.counts[word].astype(np.int64)
        totals = _sums(which, weights, distinct.shape[0])
        spelled = [_piece(int(key), marks) for key in distinct]
        order = sorted(range(len(spelled)), key=lambda i: (-int(totals[i]), spelled[i]))
        known = {*forbidden, *always}
        pieces = [*always, *(spelled[i] for i in order if spelled[i] not in known)][:number]
        symbols = {piece: symbol for symbol, piece in enumerate(pieces)}
        symbol_of = np.array([symbols.get(piece, -1) for piece in spelled], np.int32)
        cells = _cells(symbol_of[which], word, weights)
        return cls(pieces, _sums(cells.symbol, cells.weight, len(pieces)), cells, marks)


def _with_room(words: PretokenCounts) -> PretokenCounts:
    """Return words with one more byte at their ends, in the place of the mark."""
    data = np.insert(words.data, words.offsets[1:], np.uint8(0xFF))
    return PretokenCounts(data, words.offsets + np.arange(len(words) + 1), words.counts)


def _characters(words: PretokenCounts, by_bytes: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each character begins, at most four bytes long, and the word that it belongs to."""
    data, firsts = words.data, words.offsets[:-1][np.diff(words.offsets) > 0]
    begins = ((data & 0xC0) != 0x80) | by_bytes
    begins[firsts] = True
    for _ in range(3):  # a byte that continues nothing, or more than three, is a character of its own
        since = np.arange(data.shape[0]) - np.maximum.accumulate(
            np.where(begins, np.arange(data.shape[0]), -1)
        )
        begins |= since >= 4
    starts = np.flatnonzero(begins)
    return starts, np.searchsorted(words.offsets, starts, side="right") - 1


def _keys(
    words: PretokenCounts, starts: NDArray[np.int64], word: NDArray[np.int64], marks: Marks
) -> NDArray[np.uint64]:
    """Return a number for each character: its bytes, its length, and whether it continues or ends a word."""
    padded = np.append(words.data, np.zeros(4, np.uint8)).astype(np.uint64)
    lengths = np.append(starts[1:], words.data.shape[0]) - starts
    keys = np.minimum(lengths, 4).astype(np.uint64) << _LENGTH_SHIFT
    for place in range(4):
        keys |= np.where(lengths > place, padded[starts + place], np.uint64(0)) << np.uint64(8 * place)
    if marks.continues:
        keys[starts != words.offsets[word]] |= _CONTINUING
    if marks.ends:
        last = np.append(word[1:] != word[:-1], np.ones(min(1, word.shape[0]), np.bool_))
        keys[last] = _ENDING if marks.apart else keys[last] | _ENDING
    return keys


def _piece(key: int, marks: Marks) -> bytes:
    """Return the piece of a character's number."""
    length = key >> int(_LENGTH_SHIFT) & 0xFF
    text = (key & 0xFFFFFFFF).to_bytes(4, "little")[:length]
    before = marks.continues if key & int(_CONTINUING) else b""
    return before + text + (marks.ends if key & int(_ENDING) else b"")


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
