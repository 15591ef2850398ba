"""The BPE trainer: prepares counts and memory for the kernels, and returns the merges.

See `family` for the laws, and `kernels.training_merges` and `kernels.pair_lists` for the method. Training
runs in rounds: each gathers the pairs that reach a threshold, and merges until none of them is left. A lower
threshold means fewer rounds with longer lists of positions, so it is as low as the room for the lists allows,
but no lower than the requested merges need. It affects time and memory, never a merge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.kernels.pair_lists import count_magnitudes, lay_out_lists
from tokmill.tokenizer.byte_bpe.kernels.pair_queue import fill_queue
from tokmill.tokenizer.byte_bpe.kernels.training_merges import NARROW, WIDE
from tokmill.tokenizer.byte_bpe.kernels.training_state import (
    COUNTERS,
    FIRST_SEEN,
    LEXICOGRAPHIC_MAX,
    LOWEST_IDS,
    MADE_ALL,
    MAX_NARROW,
    NO_BYTES,
    NO_PAIRS,
    NO_ROOM,
    NUM_BYTES,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_TOKENS,
    PAUSED,
    THRESHOLD,
    Rules,
)
from tokmill.tokenizer.byte_bpe.layout import (
    byte_tokens,
    empty_pairs,
    empty_side,
    laid_out,
    moved_together,
    with_more_bytes,
    with_more_pairs,
)
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped, slices
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.pipeline.model import Progress

_TIES = {"lexicographic_max": LEXICOGRAPHIC_MAX, "lowest_ids": LOWEST_IDS, "first_seen": FIRST_SEEN}
_NO_LIMIT = 1 << 40
_MERGES_A_STEP = 100
_LEAST_ROOM = 1 << 16
_BYTE_PAIRS = 1 << 16
_MAX_BUCKETS = 1 << 20
_MAGNITUDES = 64
_CELLS_A_SLICE = 1 << 25  # per call of kernels that read the text, and of those that jump between places:
_PLACES_A_SLICE = 1 << 23  # a fraction of a second each


@dataclass(frozen=True)
class MergeRules:
    """What may be merged, and which of the most frequent pairs comes first.

    Attributes:
        tie_break: `lexicographic_max`, `lowest_ids` or `first_seen`.
        min_frequency: pairs that occur less often are not merged.
        max_token_bytes: longer tokens are not made.
        forbidden: bytes that no token may have.
    """

    tie_break: str = "lexicographic_max"
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Sequence[bytes] = ()

    def for_kernels(self) -> Rules:
        """Return the rules in the kernels' form."""
        data, offsets = pack_bytes(list(self.forbidden))
        longest = _NO_LIMIT if self.max_token_bytes is None else self.max_token_bytes
        return Rules(max(self.min_frequency, 1), longest, _TIES[self.tie_break], data.copy(), offsets)


class BpeTrainer:
    """Makes merges one after the other; they do not depend on how many are requested later.

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
        self._rules = rules.for_kernels()
        self._words = laid_out(counts, by_count=rules.tie_break != "first_seen")
        self._cells_at_first = self._words.cells.shape[0]
        self._max_tokens = 256 + max_merges
        self._tokens = byte_tokens(self._max_tokens)
        self._counters = np.zeros(COUNTERS, np.int64)
        self._counters[NUM_TOKENS] = self._counters[NUM_BYTES] = 256
        self._room = room
        self._kernels, self._narrow_tokens = NARROW, max_narrow

    def run(self, num_merges: int, progress: Progress | None = None) -> int:
        """Make merges until there are `num_merges`, or no pair is left; return the number of merges."""
        if not self._counters[THRESHOLD]:
            self._gather(_MAGNITUDES)
        while (made := int(self._counters[NUM_MERGES])) < num_merges:
            raise_if_stopped()
            outcome = self._merge(min(made + _MERGES_A_STEP, num_merges))
            threshold = int(self._counters[THRESHOLD])
            if outcome == NO_PAIRS and threshold == self._rules.min_count:
                break
            if outcome == NO_BYTES:
                self._tokens = with_more_bytes(self._tokens)
            elif outcome not in {MADE_ALL, PAUSED}:
                self._move_together()
                self._gather(threshold.bit_length() if outcome == NO_PAIRS else _MAGNITUDES)
            if progress is not None:
                progress(int(self._counters[NUM_MERGES]), num_merges)
        return int(self._counters[NUM_MERGES])

    def merges(self) -> list[tuple[bytes, bytes]]:
        """Return the merges made so far, in order."""
        tokens = [bytes([byte]) for byte in BYTE_ORDER]
        pairs = []
        last = int(self._counters[NUM_TOKENS])
        lefts, rights = self._tokens.left[256:last].tolist(), self._tokens.right[256:last].tolist()
        for left, right in zip(lefts, rights, strict=True):
            pairs.append((tokens[left], tokens[right]))
            tokens.append(tokens[left] + tokens[right])
        return pairs

    def _merge(self, until: int) -> int:
        """Merge until there are `until` merges; in narrow cells, as long as they can hold the symbols."""
        most = self._narrow_tokens - 256 if self._kernels is NARROW else until
        if most <= self._counters[NUM_MERGES]:
            return NO_ROOM
        state = (self._words, self._tokens, self._pairs, self._before, self._behind)
        how = self._rules, self._counters, np.empty(2, np.int64), min(until, most)
        return self._kernels.merge_pairs(*state, *how, _PLACES_A_SLICE)

    def _move_together(self) -> None:
        """End a round: shorten the text, and free the arrays that the next round makes again."""
        del self._pairs, self._before, self._behind
        widened = self._kernels is NARROW and self._counters[NUM_TOKENS] >= self._narrow_tokens
        self._words = moved_together(self._words, self._kernels, bool(widened))
        self._kernels = WIDE if widened else self._kernels
        self._tokens.width[:] = 1

    def _gather(self, num_magnitudes: int) -> None:
        """Begin a round: choose a threshold, and gather the pairs that reach it."""
        num_cells = self._words.cells.shape[0]
        of_bytes = bool(self._counters[NUM_TOKENS] == 256) and num_cells >= _BYTE_PAIRS
        buckets = zero_pages((_BYTE_PAIRS if of_bytes else _num_buckets(num_cells), 2), np.int64)
        for part in slices(1, num_cells, _CELLS_A_SLICE):
            self._kernels.count_buckets(self._words, buckets, of_bytes, *part)
        room = self._room or max(self._cells_at_first // 2 - num_cells // 4, _LEAST_ROOM)
        threshold = self._choose_threshold(buckets, num_magnitudes, room)
        places = buckets[buckets[:, 0] >= threshold, 1]
        longest = int(np.max(places, initial=0))
        lists = np.empty((places.shape[0], 2), np.int64)
        # a merge can make two other lists of the same length, so keep room for at least one merge
        positions = zero_pages(max(2 * room, int(places.sum()) + 2 * longest) + 1, np.uint32)
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
