"""The data of BPE training in memory; `training_merges` and `gathering` use it.

*Words* (distinct pre-tokens) are in one array of cells, with a separator before, between and after them. A
symbol takes one cell when words are written or compacted, and as many as its two parts when it is made by a
merge, so it takes the same number of cells everywhere. It is written in its first cell and, in the form of
`of_last_cell`, in its last one, so that both neighbours of any place can be read directly; cells in between
are holes. Words are in order of descending counts, so the count of the word at a position is found among the
few positions where it changes; only for the tie rule FIRST_SEEN they are in the order of the counts, and the
positions are many.

A *pair* is kept while its count is at least a threshold: with its count, and with a list of all its positions
in order. A pair is made together with the younger of its symbols, and from then on it can only lose places,
so its list is never extended; a lost place is noticed when the list is used, and a count is always exact. The
*queue* is a heap by count at the time of entry; a pair that comes up with a lower current count is put back
at its place. With FIRST_SEEN the first position in a pair's list decides ties. As a pair only loses places,
its first one only moves on: a pair that comes up after that place was lost is put back, too. When no pair is
left, the threshold is lowered, and the text is read again for the pairs that reach it.
"""

from typing import NamedTuple

from tokmill.tokenizer.jit.arrays import Bytes, Int16, Int32, Int64, Int64Table, UInt32, UInt64

SEPARATOR, HOLE = -1, -2

NUM_PAIRS, NUM_QUEUED, NUM_POSITIONS, NUM_TOKENS, NUM_MERGES, NUM_BYTES = 0, 1, 2, 3, 4, 5
THRESHOLD = 6
COUNTERS = 7
"""Indices in the array of counters."""

MAX_NARROW = (1 << 15) - 2
"""The most symbols in narrow cells, each in two forms."""

MADE_ALL, NO_PAIRS, NO_ROOM, NO_BYTES, PAUSED = 0, 1, 2, 3, 4
"""Why a kernel returned."""

LEXICOGRAPHIC_MAX, LOWEST_IDS, FIRST_SEEN = 0, 1, 2
"""The tie rules."""


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
        left: the symbols that it was made of; -1 for bytes.
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
        ties: what decides between equal counts: LEXICOGRAPHIC_MAX, LOWEST_IDS or FIRST_SEEN.
        forbidden: bytes that no symbol may have, one after the other.
        forbidden_offsets: where each begins.
    """

    min_count: int
    max_length: int
    ties: int
    forbidden: Bytes
    forbidden_offsets: Int64
