"""Learns pieces by merging pairs: for BPE over bytes, characters, words and sentences, and for WordPiece.

The pair of neighbouring pieces that comes first is joined, everywhere, and again: the most frequent one, or
the one of the greatest likelihood f(ab) / (f(a) f(b)), where f counts pieces, and pairs at every place where
they are neighbours. Ties: by ADR 5; or the more frequent pair comes first, then (with `shorter_first`) that
whose piece has fewer characters, then that whose piece has the smaller bytes, then that with the shorter left
part. Source: Schuster and Nakajima 2012; the likelihood is that of the textbooks.

Training runs in rounds: each gathers the pairs that reach a threshold, and merges until none of them is left.
A lower threshold means fewer rounds with longer lists of positions, so it is as low as the room for the lists
allows, but no lower than the requested merges need. It affects time and memory, never a merge.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped, slices
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.merging.kernels.likelihood import NARROW, WIDE, rank_pairs, renew
from tokmill.tokenizer.merging.kernels.merges import SEEN
from tokmill.tokenizer.merging.kernels.pair_lists import count_magnitudes, lay_out_lists
from tokmill.tokenizer.merging.kernels.pair_queue import fill_queue
from tokmill.tokenizer.merging.kernels.state import (
    COUNTERS,
    MADE_ALL,
    MAX_NARROW,
    NO_BYTES,
    NO_PAIRS,
    NO_ROOM,
    NUM_BYTES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_TOKENS,
    PAUSED,
    THRESHOLD,
    Words,
)
from tokmill.tokenizer.merging.layout import (
    Text,
    empty_pairs,
    empty_scores,
    empty_side,
    first_tokens,
    moved_together,
    text_of_bytes,
    text_of_characters,
    with_more_bytes,
    with_more_pairs,
)
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.pipeline.model import Progress

_MERGES_A_STEP = 100
_LEAST_ROOM = 1 << 16
_BYTE_PAIRS = 1 << 16
_MAX_BUCKETS = 1 << 20
_MAGNITUDES = 64
_CELLS_A_SLICE = 1 << 25  # per call of kernels that read the text, and of those that jump between places:
_PLACES_A_SLICE = 1 << 23  # a fraction of a second each


class PairTrainer:
    """Makes merges one after the other; they do not depend on how many are requested later.

    Attributes:
        pieces: the bytes of each symbol, marks included: those of the text, then those of merges in order.
        numbers: symbols by piece.
        merged: the pairs that were merged, as symbols; two that make the same piece make one symbol.
    """

    def __init__(
        self,
        text: Text,
        rules: MergeRules,
        max_pieces: int,
        room: int | None = None,
        max_narrow: int = MAX_NARROW,
    ) -> None:
        self.pieces, self.merged = list(text.pieces), list[tuple[int, int]]()
        self._taken, self._rules = rules, rules.for_kernels()
        self._words, self._cells_at_first = text.words, text.words.cells.shape[0]
        self._max_tokens = max(max_pieces, len(self.pieces)) + 1
        self._tokens = first_tokens(self.pieces, self._max_tokens)
        self._frequencies = np.zeros(self._max_tokens, np.int64)
        self._frequencies[: text.frequencies.shape[0]] = text.frequencies
        self.numbers = {piece: symbol for symbol, piece in enumerate(self.pieces)}
        self._counters = np.zeros(COUNTERS, np.int64)
        self._counters[NUM_TOKENS] = len(self.pieces)
        self._counters[NUM_BYTES] = sum(map(len, self.pieces))
        self._room, self._seen = room, np.zeros(SEEN, np.int64)
        self._kernels, self._narrow_tokens = (NARROW if isinstance(self._words, Words) else WIDE), max_narrow

    def learn(self, number: int, progress: Progress | None = None) -> int:
        """Merge until there are `number` pieces, or no pair is left; return the number of pieces."""
        if not self._counters[THRESHOLD]:
            self._gather(_MAGNITUDES)
        while len(self.pieces) < number:
            raise_if_stopped()
            until = min(len(self.pieces) + _MERGES_A_STEP, number)
            outcome = self._merge_judged(until) if self._taken.judged else self._merge(until)
            self._read_symbols()
            threshold = int(self._counters[THRESHOLD])
            if outcome == NO_PAIRS and threshold == self._rules.min_count:
                break
            if outcome == NO_BYTES:
                self._tokens = with_more_bytes(self._tokens)
            elif outcome not in {MADE_ALL, PAUSED}:
                self._move_together()
                self._gather(threshold.bit_length() if outcome == NO_PAIRS else _MAGNITUDES)
            if progress is not None:
                progress(len(self.pieces), number)
        return len(self.pieces)

    def _merge(self, until: int) -> int:
        """Merge until there are `until` symbols; in narrow cells, as long as they can hold them."""
        most = self._narrow_tokens if self._kernels is NARROW else until
        if most <= self._counters[NUM_TOKENS]:
            return NO_ROOM
        state = self._words, self._tokens, self._pairs, self._before, self._behind, self._rules
        counted = self._counters, self._seen
        if self._taken.by_likelihood:
            return self._kernels.merge_likeliest(*state, *counted, self._scores)
        return self._kernels.merge_pairs(*state, *counted, min(until, most), _PLACES_A_SLICE)

    def _merge_judged(self, until: int) -> int:
        """Merge the pairs whose pieces may be made, one by one."""
        for _ in range(_MERGES_A_STEP):
            if len(self.pieces) >= until:
                break
            pair = self._first_pair()
            if pair < 0:
                return NO_PAIRS
            left, right = (self.pieces[int(side[pair])] for side in (self._pairs.left, self._pairs.right))
            if not self._taken.takes(left + right.removeprefix(self._taken.marks.continues), right):
                self._close(pair)
            elif (outcome := self._merge(len(self.pieces) + 1)) != MADE_ALL:
                return outcome
            self._read_symbols()
        return PAUSED

    def _first_pair(self) -> int:
        """Return the pair that comes first, -1 if there is none."""
        if self._taken.by_likelihood:
            return int(self._scores.tree[1])
        return self._kernels.first_pair(*self._state)

    def _close(self, pair: int) -> None:
        """Take a pair for one that does not occur."""
        self._pairs.frequency[pair] = 0
        if self._taken.by_likelihood:
            renew(self._tokens, self._pairs, self._rules, self._scores, pair)

    def _read_symbols(self) -> None:
        """Add the symbols that kernels have made to the pieces."""
        new = slice(len(self.pieces), int(self._counters[NUM_TOKENS]))
        made = list(zip(self._tokens.left[new].tolist(), self._tokens.right[new].tolist(), strict=True))
        self.merged += made
        if not self._taken.judged:  # without marks no two pairs make the same piece
            pieces = self.pieces
            for left, right in made:
                pieces.append(pieces[left] + pieces[right])
            return
        for symbol, (left, right) in enumerate(made, start=len(self.pieces)):
            piece = self.pieces[left] + self.pieces[right].removeprefix(self._taken.marks.continues)
            known = self.numbers.setdefault(piece, symbol)
            if known == symbol:
                self.pieces.append(piece)
            else:
                self._unite(symbol, known)

    def _unite(self, symbol: int, known: int) -> None:
        """Replace the newest symbol by one of the same bytes, and begin another round."""
        self._move_together()
        self._words.cells[self._words.cells == symbol] = known
        self._frequencies[known] += self._frequencies[symbol]
        self._counters[NUM_TOKENS] -= 1
        self._counters[NUM_BYTES] -= self._tokens.length[symbol]
        self._gather(_MAGNITUDES)

    def _move_together(self) -> None:
        """End a round: shorten the text, and free the arrays that the next round makes again."""
        del self._pairs, self._before, self._behind
        widened = self._kernels is NARROW and self._counters[NUM_TOKENS] >= self._narrow_tokens
        self._words = moved_together(self._words, self._kernels, bool(widened))
        self._kernels = WIDE if widened else self._kernels
        self._tokens.width[:] = 1

    def _gather(self, num_magnitudes: int) -> None:
        """Begin a round: choose a threshold, and gather the pairs that reach it."""
        num_cells, by_likelihood = self._words.cells.shape[0], self._taken.by_likelihood
        of_bytes = bool(self._counters[NUM_TOKENS] <= 256) and num_cells >= _BYTE_PAIRS
        buckets = zero_pages((_BYTE_PAIRS if of_bytes else _num_buckets(num_cells), 2), np.int64)
        for part in slices(1, num_cells, _CELLS_A_SLICE):
            self._kernels.count_buckets(self._words, buckets, of_bytes, *part)
        room = self._room or max(self._cells_at_first // 2 - num_cells // 4, _LEAST_ROOM)
        threshold = self._rules.min_count
        if not by_likelihood:  # rare pairs may come first by likelihood
            threshold = self._choose_threshold(buckets, num_magnitudes, room)
        places = buckets[buckets[:, 0] >= threshold, 1]
        longest, num_places = int(np.max(places, initial=0)), int(places.sum())
        lists = np.empty((places.shape[0], 2), np.int64)
        # a merge can make two other lists of the same length, so keep room for at least one merge
        least_room = num_places + 2 * (num_places if by_likelihood else longest)
        positions = zero_pages(max(2 * room, least_room) + 1, np.uint32)
        lay_out_lists(buckets, lists, threshold, positions.shape[0] - 1)
        for part in slices(1, num_cells, _CELLS_A_SLICE):
            self._kernels.list_places(self._words, buckets, positions, of_bytes, *part)
        self._counters[THRESHOLD] = threshold
        self._make_pairs(lists, positions, longest, of_bytes)
        self._before, self._behind = (empty_side(longest, self._max_tokens) for _ in range(2))

    def _choose_threshold(self, buckets: NDArray[np.int64], num_magnitudes: int, room: int) -> int:
        """Return a power of two, or the least count that may be merged, if that is greater."""
        counted = np.zeros((_MAGNITUDES, 2), np.int64)
        count_magnitudes(buckets, counted)
        wanted = self._max_tokens - int(self._counters[NUM_TOKENS])
        num_pairs, num_places, threshold = 0, 0, 1
        for magnitude, (num_buckets, places) in reversed(list(enumerate(counted.tolist()))):
            num_places += places
            if num_pairs and (num_places > room or num_pairs > 2 * wanted):
                threshold = 1 << magnitude
                break
            # greater counts are those of buckets with many pairs, as no single one is as frequent
            num_pairs += num_buckets if magnitude < num_magnitudes else 0
        return max(threshold, self._rules.min_count)

    def _make_pairs(
        self, lists: NDArray[np.int64], positions: NDArray[np.uint32], longest: int, of_bytes: bool
    ) -> None:
        max_pairs = 2 * lists.shape[0] + 2 * self._max_tokens + 1
        self._pairs = empty_pairs(max_pairs, positions)
        self._counters[NUM_PAIRS] = self._counters[NUM_POSITIONS] = 0
        scratch = lists, np.empty(longest, np.uint32), np.empty(2, np.int64)
        progress = np.zeros(3, np.int64)
        for until in _lists_a_slice(lists[:, 1]):
            raise_if_stopped()
            while self._kernels.make_pairs(*self._state, *scratch, of_bytes, progress, until) == NO_ROOM:
                self._pairs = with_more_pairs(self._pairs, self._counters)
        if self._taken.by_likelihood:
            self._scores = empty_scores(self._frequencies, self._pairs.left.shape[0])
            rank_pairs(self._tokens, self._pairs, self._rules, self._counters, self._scores)
        else:
            fill_queue(self._tokens, self._pairs, self._rules, self._counters)

    @property
    def _state(self) -> tuple[Any, ...]:
        return self._words, self._tokens, self._pairs, self._rules, self._counters


def _lists_a_slice(ends: NDArray[np.int64]) -> Iterator[int]:
    """Yield the numbers of lists, ending at these places, that fill one slice each."""
    done = 0
    while done < ends.shape[0]:
        wanted = ends[done] + _PLACES_A_SLICE
        done = int(np.searchsorted(ends, wanted, side="right"))
        yield done


def _num_buckets(num_cells: int) -> int:
    return min(1 << max(num_cells.bit_length() - 3, 8), _MAX_BUCKETS)


class BpeTrainer(PairTrainer):
    """Makes merges of bytes.

    Attributes:
        num_distinct_bytes: number of the 256 bytes that occur in the pre-tokens.
    """

    def __init__(
        self,
        counts: PretokenCounts,
        rules: MergeRules,
        max_merges: int,
        room: int | None = None,
        max_narrow: int = MAX_NARROW,
    ) -> None:
        """Copy the counts into cells; they are not needed afterwards."""
        self.num_distinct_bytes = counts.num_distinct_bytes
        text = text_of_bytes(counts, by_count=rules.tie_break != "first_seen")
        super().__init__(text, rules, 256 + max_merges, room, max_narrow)

    def run(self, num_merges: int, progress: Progress | None = None) -> int:
        """Make merges until there are `num_merges`, or no pair is left; return the number of merges."""
        report = None if progress is None else lambda made, wanted: progress(made - 256, wanted - 256)
        return self.learn(256 + num_merges, report) - 256

    def merges(self) -> list[tuple[bytes, bytes]]:
        """Return the merges made so far, in order."""
        return [(self.pieces[left], self.pieces[right]) for left, right in self.merged]


def learn_merges(
    words: PretokenCounts,
    number: int,
    rules: MergeRules,
    always: Sequence[bytes] = (),
    progress: Progress | None = None,
) -> PairTrainer:
    """Learn `number` pieces of words: `always`, characters, the most frequent first, then those of merges."""
    by_count = rules.tie_break != "first_seen"
    text = text_of_characters(words, number, rules.forbidden, rules.marks, always, by_count=by_count)
    trainer = PairTrainer(text, rules, number)
    trainer.learn(number, progress)
    return trainer
