"""The BPE trainer: lays counts out for the kernels, gives them room, and hands the merges over.

See `training` for the laws and `kernels.merging` for how it is done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenizer.alphabet import BYTE_ORDER
from tokenizer.buffers import pack_bytes
from tokenizer.counting import PretokenCounts
from tokenizer.errors import TrainingError
from tokenizer.kernels.making_room import drop_dead_pairs, drop_lost_places
from tokenizer.kernels.merging import merge_pairs, start_pairs
from tokenizer.kernels.pair_queue import fill_queue
from tokenizer.kernels.sorting import gather_strings
from tokenizer.kernels.training_state import (
    COUNTERS,
    NO_PAIRS,
    NO_ROOM,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_TOKENS,
    PAIRS_NEEDED,
    POSITIONS_NEEDED,
    SEPARATOR,
    Pairs,
    Rules,
    Tokens,
    Words,
    Work,
)

Number = TypeVar("Number", bound=np.generic)
Progress = Callable[[int, int], None]

_NO_LIMIT = 1 << 40
_MERGES_A_STEP = 250
_MAX_CELLS = (1 << 32) - 1


@dataclass(frozen=True)
class MergeRules:
    """What may be merged, and which of the most frequent pairs comes first.

    Attributes:
        tie_break: `lexicographic_max` or `lowest_ids`.
        min_frequency: pairs that occur less often are not merged.
        max_token_bytes: longer tokens are not made.
        forbidden: bytes that no token may have.
    """

    tie_break: str = "lexicographic_max"
    min_frequency: int = 1
    max_token_bytes: int | None = None
    forbidden: Sequence[bytes] = ()

    def for_kernels(self) -> Rules:
        """Lay the rules out for the kernels."""
        data, offsets = pack_bytes(list(self.forbidden))
        longest = _NO_LIMIT if self.max_token_bytes is None else self.max_token_bytes
        lexicographic = self.tie_break == "lexicographic_max"
        return Rules(max(self.min_frequency, 1), longest, lexicographic, data.copy(), offsets)


class BpeTrainer:
    """Makes merges one after the other; what it has made does not depend on how many are asked for later."""

    def __init__(self, counts: PretokenCounts, rules: MergeRules, max_merges: int) -> None:
        """Lay out the counts.

        Args:
            counts: how often each pre-token occurs.
            rules: what may be merged.
            max_merges: how many merges there is room for.

        Raises:
            TrainingError: there is more text than positions can number, or counts whose sum is no int64.
        """
        self._rules = rules.for_kernels()
        self._words = _lay_out(counts)
        self._tokens = _start_tokens(max_merges)
        self._counters = np.zeros(COUNTERS, np.int64)
        self._counters[NUM_TOKENS] = 256
        self._seen = np.zeros(4, np.int64)
        places = int(np.count_nonzero(self._words.cells != SEPARATOR))
        self._pairs = _empty_pairs(1 << 17, places + places // 4 + 1024)
        counts_of, numbers = np.zeros(1 << 16, np.int64), np.zeros(1 << 16, np.int64)
        symbol_of = np.argsort(np.array(BYTE_ORDER)).astype(np.int32)
        start_pairs(
            self._words, self._tokens, self._pairs, self._rules, self._counters, counts_of, numbers, symbol_of
        )
        fill_queue(self._words, self._tokens, self._pairs, self._rules, self._counters)
        longest = int(np.max(self._pairs.number[: self._counters[NUM_PAIRS]], initial=0))
        self._work = _make_work(longest, 256 + max_merges)

    def run(self, num_merges: int, progress: Progress | None = None) -> int:
        """Make merges until there are `num_merges`, or none is left to make; return how many there are."""
        while self._counters[NUM_MERGES] < num_merges:
            until = min(int(self._counters[NUM_MERGES]) + _MERGES_A_STEP, num_merges)
            outcome = merge_pairs(
                self._words,
                self._tokens,
                self._pairs,
                self._work,
                self._rules,
                self._counters,
                self._seen,
                until,
            )
            if outcome == NO_PAIRS:
                break
            if outcome == NO_ROOM:
                self._make_room()
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

    def _make_room(self) -> None:
        """Drop what is lost, and grow what would still be nearly full."""
        state = (self._words, self._tokens, self._pairs, self._rules, self._counters)
        if self._lacks(NUM_POSITIONS, POSITIONS_NEEDED, self._pairs.positions.shape[0]):
            drop_lost_places(*state)
            needed = int(self._counters[NUM_POSITIONS] + self._counters[POSITIONS_NEEDED])
            if needed + needed // 16 > self._pairs.positions.shape[0]:
                positions = _resized(self._pairs.positions, needed + needed // 4)
                self._pairs = self._pairs._replace(positions=positions)
        if self._lacks(NUM_PAIRS, PAIRS_NEEDED, self._pairs.frequency.shape[0]):
            self._pairs = _with_room(
                self._pairs, int(self._counters[NUM_PAIRS] + self._counters[PAIRS_NEEDED])
            )
            drop_dead_pairs(self._pairs, self._rules, self._counters)
            fill_queue(self._words, self._tokens, self._pairs, self._rules, self._counters)

    def _lacks(self, used: int, needed: int, room: int) -> bool:
        return bool(self._counters[used] + self._counters[needed] > room)


def _lay_out(counts: PretokenCounts) -> Words:
    """Lay pre-tokens into cells, in order of falling counts; those of one byte have no pairs and stay out."""
    lengths = np.diff(counts.offsets)
    useful = np.flatnonzero((lengths > 1) & (counts.counts > 0))
    order = useful[np.argsort(~counts.counts[useful], kind="stable")]
    lengths, weights = lengths[order], counts.counts[order]
    num_cells = int(lengths.sum()) + order.shape[0] + 1
    if num_cells > _MAX_CELLS or float((weights.astype(np.float64) * lengths).sum()) >= 2.0**62:
        most = int(np.max(weights))
        raise TrainingError(
            f"train: {order.shape[0]} pre-tokens with {num_cells} bytes and counts up to {most} "
            f"are too many: at most {_MAX_CELLS} bytes and 2**62 pairs can be counted; leave out the rarest "
            "pre-tokens, or divide the counts"
        )
    starts = np.cumsum(lengths + 1) - lengths
    return Words(*_cells(counts, order, lengths, num_cells), *_steps(starts, weights, num_cells))


def _cells(
    counts: PretokenCounts, order: NDArray[np.int64], lengths: NDArray[np.int64], num_cells: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the cells, in which only separators stand yet, and their bytes."""
    flat, ends = np.empty(num_cells - order.shape[0] - 1, np.uint8), np.empty(order.shape[0] + 1, np.int64)
    gather_strings(counts.data, counts.offsets, order, flat, ends)
    cells = np.zeros(num_cells, np.int32)
    cells[ends + np.arange(order.shape[0] + 1)] = SEPARATOR
    text = np.zeros(num_cells, np.uint8)
    text[cells != SEPARATOR] = flat
    return cells, text


def _steps(
    starts: NDArray[np.int64], weights: NDArray[np.uint64], num_cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the counts of words change, and to what."""
    changes = np.flatnonzero(
        np.concatenate([np.ones(min(1, weights.shape[0]), np.bool_), np.diff(weights) != 0])
    )
    step_at = np.concatenate([starts[changes], [num_cells]]).astype(np.int64)
    return step_at, weights[changes].astype(np.int64)


def _start_tokens(max_merges: int) -> Tokens:
    size = 256 + max_merges
    tokens = Tokens(
        np.full(size, -1, np.int64),
        np.ones(size, np.int32),
        np.zeros(size, np.uint64),
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int32),
    )
    tokens.prefix[:256] = np.array(BYTE_ORDER, np.uint64) << np.uint64(56)
    return tokens


def _empty_pairs(pairs: int, positions: int) -> Pairs:
    return Pairs(
        np.empty(pairs, np.int32),
        np.empty(pairs, np.int32),
        np.empty(pairs, np.int64),
        np.empty(pairs, np.int64),
        np.empty(pairs, np.int64),
        np.full(1 << (2 * pairs - 1).bit_length(), -1, np.int32),
        np.empty(pairs, np.int32),
        np.empty(pairs, np.int64),
        np.empty(positions, np.uint32),
    )


def _with_room(old: Pairs, pairs: int) -> Pairs:
    """Return the same pairs in arrays of twice a size; slots and queue are left to be made again."""
    empty = _empty_pairs(2 * pairs, 0)
    return empty._replace(
        left=_resized(old.left, 2 * pairs),
        right=_resized(old.right, 2 * pairs),
        frequency=_resized(old.frequency, 2 * pairs),
        first=_resized(old.first, 2 * pairs),
        number=_resized(old.number, 2 * pairs),
        positions=old.positions,
    )


def _resized(old: NDArray[Number], size: int) -> NDArray[Number]:
    new = np.empty(size, old.dtype)
    new[: old.shape[0]] = old
    return new


def _make_work(longest: int, tokens: int) -> Work:
    return Work(
        np.empty(longest, np.int32),
        np.empty(longest, np.int32),
        np.zeros(tokens, np.int64),
        np.zeros(tokens, np.int64),
        np.zeros(tokens, np.int64),
        np.zeros(tokens, np.int64),
        np.empty(tokens, np.int32),
        np.empty(tokens, np.int32),
    )
