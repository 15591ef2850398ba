"""The arrays of a training by merges: filled from counts, or empty and of the right size."""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import slices
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.merging.kernels.likelihood import Scores, TrainingKernels
from tokmill.tokenizer.merging.kernels.pair_queue import enter_pairs
from tokmill.tokenizer.merging.kernels.state import (
    NUM_PAIRS,
    SEPARATOR,
    Pairs,
    Side,
    Tokens,
    WideWords,
    Words,
    lay_out,
)

Number = TypeVar("Number", bound=np.generic)
AnyWords: TypeAlias = Words | WideWords

MAX_CELLS = (1 << 32) - 1
_WORDS_A_SLICE = 1 << 20


def laid_out(counts: PretokenCounts, *, by_count: bool = True) -> AnyWords:
    """Write pre-tokens into cells; those of one byte have no pairs and are left out."""
    lengths = np.diff(counts.offsets)
    useful = np.flatnonzero((lengths > 1) & (counts.counts > 0))
    order = useful[np.argsort(~counts.counts[useful], kind="stable")] if by_count else useful
    weights = counts.counts[order]
    num_cells = int(lengths[order].sum()) + order.shape[0] + 1
    if num_cells > MAX_CELLS or float((weights.astype(np.float64) * lengths[order]).sum()) >= 2.0**62:
        most = int(np.max(weights))
        raise TrainingError(
            f"train: {order.shape[0]} pre-tokens with {num_cells} bytes and counts up to {most} "
            f"are too many: at most {MAX_CELLS} bytes and 2**62 pairs can be counted; leave out the rarest "
            "pre-tokens, or divide the counts"
        )
    num_steps = np.count_nonzero(weights[1:] != weights[:-1]) + min(1, weights.shape[0])
    words = Words(
        zero_pages(num_cells, np.int16), np.empty(num_steps + 1, np.int64), np.empty(num_steps, np.int64)
    )
    symbol_of = np.argsort(np.array(BYTE_ORDER)).astype(np.int32)
    words.cells[0], progress = SEPARATOR, np.array([0, 1, 0, -1])
    words.step_at[0] = 1
    for _, until in slices(0, order.shape[0], _WORDS_A_SLICE):
        lay_out(counts.data, counts.offsets, counts.counts, order, symbol_of, words, progress, until)
    return words


def moved_together(words: AnyWords, kernels: TrainingKernels, widened: bool) -> AnyWords:
    """Move every symbol into one cell, in new memory of the smaller size; into wide cells if `widened`."""
    num_steps = kernels.compact(words)
    num_cells = int(words.step_at[num_steps])
    steps = words.step_at[: num_steps + 1], words.step_count[:num_steps]
    if widened or isinstance(words, WideWords):
        return WideWords(_in_pages(words.cells[:num_cells], np.int32), *steps)
    return Words(_in_pages(words.cells[:num_cells], np.int16), *steps)


def _in_pages(array: NDArray[Any], kind: type[Number]) -> NDArray[Number]:
    pages = zero_pages(array.shape[0], kind)
    pages[:] = array
    return pages


def first_tokens(pieces: Sequence[bytes], max_tokens: int) -> Tokens:
    """Return symbols of these bytes, with room for others."""
    data, offsets = pack_bytes(list(pieces))
    number = len(pieces)
    tokens = Tokens(
        np.concatenate([data, np.zeros(1 << 12, np.uint8)]),
        np.zeros(max_tokens, np.int64),
        np.ones(max_tokens, np.int32),
        np.ones(max_tokens, np.int32),
        np.zeros(max_tokens, np.uint64),
        np.full(max_tokens, -1, np.int32),
        np.full(max_tokens, -1, np.int32),
    )
    tokens.at[:number], tokens.length[:number] = offsets[:-1], np.diff(offsets)
    tokens.prefix[:number] = [int.from_bytes(piece[:8].ljust(8, b"\0"), "big") for piece in pieces]
    return tokens


def with_more_bytes(tokens: Tokens) -> Tokens:
    """Return the same symbols with twice the room for their bytes."""
    return tokens._replace(data=np.concatenate([tokens.data, np.empty_like(tokens.data)]))


def empty_pairs(max_pairs: int, positions: NDArray[np.uint32]) -> Pairs:
    """Return room for pairs."""
    return Pairs(
        left=np.empty(max_pairs, np.int32),
        right=np.empty(max_pairs, np.int32),
        frequency=np.empty(max_pairs, np.int64),
        first=np.empty(max_pairs, np.int64),
        number=np.empty(max_pairs, np.int64),
        slots=np.full(1 << (2 * max_pairs - 1).bit_length(), -1, np.int32),
        queue=np.empty(max_pairs, np.int32),
        queue_count=np.empty(max_pairs, np.int64),
        positions=positions,
    )


def with_more_pairs(pairs: Pairs, counters: NDArray[np.int64]) -> Pairs:
    """Return the same pairs, which are not queued yet, with twice the room."""
    larger, number = empty_pairs(2 * pairs.left.shape[0], pairs.positions), int(counters[NUM_PAIRS])
    for name in ("left", "right", "frequency", "first", "number"):
        getattr(larger, name)[:number] = getattr(pairs, name)[:number]
    enter_pairs(larger, counters)
    return larger


def empty_side(max_places: int, max_tokens: int) -> Side:
    """Return room for the symbols on one side of a merge's places."""
    return Side(
        np.empty(max_places, np.int32),
        np.zeros((max_tokens + 1, 2), np.int64),
        np.empty(
            max_tokens + 2, np.int32
        ),  # for the separator, and for one that is written before it is counted
    )


def empty_scores(frequencies: NDArray[np.int64], max_pairs: int) -> Scores:
    """Return the scores of no pair yet, of symbols that occur so often."""
    of_left, of_right = np.full((2, frequencies.shape[0]), -1, np.int32)
    next_of_left, next_of_right = np.empty((2, max_pairs), np.int32)
    tree = np.full(2 << max(max_pairs - 1, 1).bit_length(), -1, np.int32)
    return Scores(frequencies, of_left, of_right, next_of_left, next_of_right, np.zeros(max_pairs), tree)
