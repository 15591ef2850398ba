"""Learns pieces by joining pairs: those of WordPiece, and of BPE over characters and words.

A word is cut into characters; for WordPiece, each but the first has `##` before it, and for BPE over words
the last one has `</w>` after it, or that is a piece of its own. Then the pair of neighbouring pieces with the
best score is joined, everywhere, and again. Scores are those of the present pieces:

    likelihood   f(ab) / (f(a) f(b))     f counts pieces, and pairs at every place where they are neighbours
    frequency    f(ab)

Ties: the more frequent pair comes first, then (with `shorter_first`) the one whose joined piece has fewer
characters, then the one whose joined piece has the smaller bytes, then the one with the shorter left part; or
the more frequent pair, and then by the tie rules of ADR 5. Scores are compared exactly, as integers.
Source: Schuster and Nakajima 2012; the score is that of the textbooks.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.counting import PretokenCounter
from tokmill.tokenizer.kernels.joining import first_of_best, join_pair, renew_all, set_closed
from tokmill.tokenizer.kernels.pair_table import (
    NUM_PAIRS,
    Pairs,
    Places,
    Symbols,
    count_pairs,
    fill_slots,
    list_places,
)
from tokmill.tokenizer.merging.rules import Alphabet, JoinRules
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import words_of


def count_words(counts: PretokenCounts, *, as_met: bool = False) -> PretokenCounts:
    """Count the words of pre-tokens; a word counts as often as the pre-tokens that contain it."""
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    words = words_of(counts.data, Pretokens(starts, ends, np.arange(starts.shape[0] + 1)))
    weights = np.repeat(counts.counts, np.diff(words.offsets))
    counted = weights > 0
    starts, ends = words.starts[counted], words.ends[counted]
    if as_met:
        return _as_met(counts.data.tobytes(), starts, ends, weights[counted])
    counter = PretokenCounter()
    counter.add(counts.data, starts, ends, weights[counted])
    return counter.take()


def _as_met(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], weights: NDArray[np.uint64]
) -> PretokenCounts:
    """Count words in the order in which they come."""
    found = dict[bytes, int]()
    for start, end, weight in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
        found[data[start:end]] = found.get(data[start:end], 0) + weight
    return PretokenCounts.from_dict(found, in_order=False)


_LEAST_ROOM: Final = 1 << 12
_JOINS_A_STEP: Final = 100
_MAX_CELLS: Final = (1 << 31) // 4


def learn_pieces(
    words: PretokenCounts, number: int, rules: JoinRules, progress: Progress | None = None
) -> list[bytes]:
    """Return pieces: characters, the most frequent first, then joined ones in the order of their making."""
    return learn_merges(words, number, rules, (), progress)[0]


def learn_merges(
    words: PretokenCounts,
    number: int,
    rules: JoinRules,
    always: Sequence[bytes] = (),
    progress: Progress | None = None,
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return pieces as `learn_pieces` does, and the merges, as pairs of pieces by number.

    A pair may be joined whose piece is known from another pair: that is a merge, and no new piece.
    """
    alphabet = Alphabet.of(words, number, frozenset(rules.forbidden), rules.marks, always)
    if len(alphabet.pieces) >= number:
        return list(alphabet.pieces), []
    joining = _Joining(alphabet, number, rules)
    made = 0
    while len(joining.pieces) < number and (pair := joining.best()) >= 0:
        joined = joining.joined(pair)
        fits = rules.takes(joined) and joining.tells_its_end(pair, joined)
        taken = fits and (rules.join_again or joining.is_new(joined))
        joining.join(pair, joined) if taken else joining.close(pair)
        made += 1
        if made % _JOINS_A_STEP == 0:
            raise_if_stopped()
            if progress is not None:
                progress(len(joining.pieces), number)
    return joining.pieces, joining.merges


def join_rules(options: ModelOptions, names: Iterable[str], **chosen: Any) -> JoinRules:
    """Return the rules of a training's options; no piece has the bytes of one of the names."""
    return JoinRules(
        min_frequency=options.min_frequency,
        max_token_bytes=options.max_token_bytes,
        forbidden={name.encode() for name in names},
        **chosen,
    )


def check_learned(num_pieces: int, wanted: int, num_fixed: int, options: ModelOptions) -> None:
    """Warn of fewer pieces than wanted, beside `num_fixed` other tokens, if that is allowed."""
    if not num_pieces:
        raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
    if num_pieces < wanted:
        error = TrainingError(
            f"train: the corpus has {num_pieces} pieces, but vocab_size={num_fixed + wanted} needs {wanted}; "
            f"lower vocab_size to {num_fixed + num_pieces}, or add text"
        )
        accept_smaller(options, error)


class _Joining:
    """The words as pieces, while pairs are joined.

    Attributes:
        pieces: the bytes of each symbol, marks included.
        merges: the pairs that were joined, as symbols.
    """

    def __init__(self, alphabet: Alphabet, number: int, rules: JoinRules) -> None:
        cells = alphabet.cells
        if cells.symbol.shape[0] > _MAX_CELLS:
            raise TrainingError(
                f"train: {cells.symbol.shape[0]} characters in distinct words are too many; at most "
                f"{_MAX_CELLS} can be used"
            )
        self.pieces, self.merges = list(alphabet.pieces), list[tuple[int, int]]()
        self._marks, self._by_place, self._nodes = alphabet.marks, rules.by_place, np.empty(64, np.int64)
        self._numbers = {piece: i for i, piece in enumerate(self.pieces)}
        self._least, self._order = max(rules.min_frequency, 1), rules.order
        self._cells, self._counters = cells, np.zeros(2, np.int64)
        self._symbols = _symbols(alphabet, number, rules.shorter_first)
        self._shorter_first = rules.shorter_first
        self._places = Places(*np.empty((2, 3 * cells.symbol.shape[0] + 1), np.int32))
        self._scratch = np.empty(cells.symbol.shape[0] + 1, np.int32)
        self._pairs = _empty_pairs(_LEAST_ROOM)
        at = 0
        while (at := count_pairs(cells, self._pairs, self._places, self._symbols, self._counters, at)) < len(
            cells.symbol
        ):
            self._pairs = _larger(self._pairs, self._counters)
        renew_all(self._pairs, self._symbols, self._counters, self._least, self._order)

    def best(self) -> int:
        """Return the pair that comes first, -1 if there is none."""
        if self._by_place:
            return int(first_of_best(self._cells, self._pairs, self._places, self._nodes))
        return int(self._pairs.tree[1])

    def joined(self, pair: int) -> bytes:
        """Return the piece that a pair makes."""
        left, right = int(self._pairs.left[pair]), int(self._pairs.right[pair])
        return self.pieces[left] + self.pieces[right].removeprefix(self._marks.continues)

    def tells_its_end(self, pair: int, joined: bytes) -> bool:
        """Whether a piece does not end with the text of the mark, unless it ends a word."""
        ends, right = self._marks.ends, self.pieces[int(self._pairs.right[pair])]
        return not ends or joined.endswith(ends) == right.endswith(ends)

    def is_new(self, joined: bytes) -> bool:
        """Whether no other pair has made a piece."""
        return joined not in self._numbers

    def close(self, pair: int) -> None:
        """Never join a pair."""
        set_closed(pair, self._pairs, self._symbols, self._least, self._order)

    def join(self, pair: int, joined: bytes) -> None:
        """Join a pair everywhere; its piece may be known from another pair."""
        self.merges.append((int(self._pairs.left[pair]), int(self._pairs.right[pair])))
        symbol = self._numbers.setdefault(joined, len(self.pieces))
        if symbol == len(self.pieces):
            self.pieces.append(joined)
            self._symbols = _with_symbol(self._symbols, symbol, joined)
            self._symbols.size[symbol] = len(joined.decode()) if self._shorter_first else 0
        places = self._scratch[: list_places(self._pairs, self._places, pair, self._scratch)]
        places.sort()
        needed = int(self._counters[NUM_PAIRS]) + 2 * len(places)
        while needed > self._pairs.left.shape[0]:
            self._pairs = _larger(self._pairs, self._counters)
            renew_all(self._pairs, self._symbols, self._counters, self._least, self._order)
        state = self._cells, self._pairs, self._places, self._symbols, self._counters
        join_pair(*state, places, pair, symbol, self._least, self._order)


def _symbols(alphabet: Alphabet, number: int, shorter_first: bool) -> Symbols:
    """Lay the characters out as symbols, with room for as many pieces as are wanted."""
    pieces = alphabet.pieces
    room, ends = max(number, len(pieces)) + 1, np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    frequency, at, end = np.zeros((3, room), np.int64)
    frequency[: len(pieces)] = alphabet.frequencies
    at[: len(pieces)], end[: len(pieces)] = ends[:-1], ends[1:]
    nothing = np.full((2, room), -1, np.int32)
    data = np.frombuffer(b"".join(pieces), np.uint8).copy()
    sizes = np.full(room, int(shorter_first), np.int32)
    return Symbols(frequency, nothing[0], nothing[1], at, end, data, len(alphabet.marks.continues), sizes)


def _with_symbol(symbols: Symbols, symbol: int, piece: bytes) -> Symbols:
    """Add the bytes of a new piece."""
    first = int(symbols.end[symbol - 1])
    data, last = symbols.data, first + len(piece)
    if last > data.shape[0]:
        data = np.concatenate([data, np.empty(data.shape[0] + last, np.uint8)])
    data[first:last] = np.frombuffer(piece, np.uint8)
    symbols.at[symbol], symbols.end[symbol] = first, last
    return symbols._replace(data=data)


def _empty_pairs(room: int) -> Pairs:
    """Make room for a power of two of pairs."""
    left, right, place, next_of_left, next_of_right = np.empty((5, room), np.int32)
    count, score, closed = np.zeros(room, np.int64), np.zeros(room, np.float64), np.zeros(room, np.uint8)
    slots, tree = np.full((2, 2 * room), -1, np.int32)
    return Pairs(left, right, count, score, closed, place, next_of_left, next_of_right, slots, tree)


def _larger(pairs: Pairs, counters: NDArray[np.int64]) -> Pairs:
    """Return the same pairs with room for twice as many; the tree is empty."""
    old = pairs.left.shape[0]
    larger = _empty_pairs(2 * old)
    arrays: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(larger[:-2], pairs[:-2], strict=True)
    for new, given in arrays:
        new[:old] = given
    fill_slots(larger, counters)
    return larger
