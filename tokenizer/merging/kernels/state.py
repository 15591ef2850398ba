"""The data of a training by merges in memory.

*Words* are in one array of cells, with a separator before, between and after them. A symbol takes one cell
when words are written or compacted, and as many as its parts when a merge makes it. It is written in its
first cell and, in the form of `of_last_cell`, in its last one, so that both neighbours of any place can be
read; cells in between are holes. Words are in order of descending counts, so the count at a position is found
among the few positions where it changes; with FIRST_SEEN they are in the order of the counts.

A *pair* is kept while its count reaches a threshold: with its exact count, and a list of its positions in
order. It is made with the younger of its symbols and can only lose places, which is noticed when the list is
used. The *queue* is a heap by count at the time of entry; a pair that comes up with a lower count, or with
FIRST_SEEN at a later first place, is put back. When no pair is left, the threshold is lowered, and the text
is read again.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import (
    Bytes,
    BytesIn,
    Int16,
    Int32,
    Int64,
    Int64In,
    Int64Table,
    UInt32,
    UInt64,
    UInt64In,
)

SEPARATOR, HOLE = -1, -2

NUM_PAIRS, NUM_QUEUED, NUM_POSITIONS, NUM_TOKENS, NUM_BYTES = 0, 1, 2, 3, 4
THRESHOLD = 5
COUNTERS = 6
"""Indices in the array of counters."""

MAX_NARROW = (1 << 15) - 2
"""The most symbols in narrow cells, each in two forms."""

MADE_ALL, NO_PAIRS, NO_ROOM, NO_BYTES, PAUSED = 0, 1, 2, 3, 4
"""Why a kernel returned."""

LEXICOGRAPHIC_MAX, LOWEST_IDS, FIRST_SEEN, SMALLEST_PIECE, SHORTEST_PIECE, LIKELIHOOD = 0, 1, 2, 3, 4, 5
"""Rules of which pair comes first among equally frequent ones: see `pair_queue.wins`.

With LIKELIHOOD scores come before counts; see `likelihood`.
"""


class Words(NamedTuple):
    """The training text, in narrow cells: for symbols below MAX_NARROW.

    Attributes:
        cells: the symbol that begins in a cell; or the one that ends there, in its other form; or SEPARATOR
            or HOLE.
        step_at: positions at which the count of words changes, in order; the last one is after all words.
        step_count: the words' count from there on.
    """

    cells: Int16
    step_at: Int64
    step_count: Int64


class WideWords(NamedTuple):
    """The same in wider cells, for any symbol."""

    cells: Int32
    step_at: Int64
    step_count: Int64


class Tokens(NamedTuple):
    """The symbols, by id.

    Attributes:
        data: the bytes of all symbols.
        at: where the symbol's bytes begin.
        length: its number of bytes.
        width: its number of cells.
        prefix: its first eight bytes as a big-endian number.
        left: the symbols that it was made of; -1 for those of the beginning.
        right: the same.
    """

    data: Bytes
    at: Int64
    length: Int32
    width: Int32
    prefix: UInt64
    left: Int32
    right: Int32


class Pairs(NamedTuple):
    """Pairs of symbols that are frequent enough.

    Attributes:
        left: the first symbol.
        right: the second symbol.
        frequency: the current count of the pair in the text; 0 for merged pairs.
        first: where its list of positions begins.
        number: number of positions in its list.
        slots: pairs by hash of their symbols, -1 where empty.
        queue: indices of pairs, as a heap.
        queue_count: the count with which each entered it.
        positions: all lists, and after them one element for places without a list.
    """

    left: Int32
    right: Int32
    frequency: Int64
    first: Int64
    number: Int64
    slots: Int32
    queue: Int32
    queue_count: Int64
    positions: UInt32


class Side(NamedTuple):
    """The symbols on one side of the places of a merge.

    Attributes:
        symbols: the symbol at each place, or SEPARATOR.
        rows: by symbol + 1: its count there, its number of places, and the index for its positions;
            zeros between merges.
        seen: the different symbols.
    """

    symbols: Int32
    rows: Int64Table
    seen: Int32


class Rules(NamedTuple):
    """The rules of merging: allowed pairs, and ties.

    Attributes:
        min_count: pairs that occur less often are not merged.
        max_length: longer symbols are not made.
        ties: what decides between equal counts, one of the numbers above.
        mark: how many bytes before the text of a right part say that it continues a word.
        forbidden: bytes that no symbol may have, one after the other.
        forbidden_offsets: where each begins.
    """

    min_count: int
    max_length: int
    ties: int
    mark: int
    forbidden: Bytes
    forbidden_offsets: Int64


@kernel(inline=True)
def of_last_cell(number: int) -> int:
    """Turn a symbol into its form for the last of several cells, or that form into the symbol."""
    return HOLE - 1 - number


@kernel(inline=True)
def symbol_in(cell: int) -> int:
    """Return the symbol that begins or ends in a cell, or SEPARATOR."""
    return cell if cell >= SEPARATOR else of_last_cell(cell)


@kernel
def lay_out(
    data: BytesIn,
    offsets: Int64In,
    counts: UInt64In,
    order: Int64In,
    symbol_of: Int32,
    words: Words,
    progress: Int64,
    until: int,
) -> None:
    """Write words into cells, one symbol per byte."""
    used, steps, last = progress[1], progress[2], progress[3]
    for k in range(progress[0], until):
        word = order[k]
        if np.int64(counts[word]) != last:
            last = np.int64(counts[word])
            words.step_at[steps], words.step_count[steps] = used, last
            steps += 1
        for i in range(offsets[word], offsets[word + 1]):
            words.cells[used] = symbol_of[data[i]]
            used += 1
        words.cells[used] = SEPARATOR
        used += 1
    words.step_at[steps] = used
    progress[0], progress[1], progress[2], progress[3] = until, used, steps, last


@kernel
def compact(words: Words) -> int:
    """Compact the text, so that each symbol takes one cell, and drop words that are one symbol."""
    cells = words.cells
    used, steps = np.int64(1), 0
    for step in range(words.step_count.shape[0]):
        count, first, start = words.step_count[step], used, used
        for position in range(words.step_at[step], words.step_at[step + 1]):
            cell = cells[position]
            cells[used] = cell
            used += 1 if cell >= SEPARATOR else 0
            if cell == SEPARATOR:
                used = used if used - start > 2 else start
                start = used
        if used > first:
            words.step_at[steps], words.step_count[steps] = first, count
            steps += 1
    words.step_at[steps] = used
    return steps
