"""What BPE training keeps in memory: see `merging` for how it is used.

*Words* (distinct pre-tokens) lie in one array of cells, a cell a byte and a separator before, between and
after them. A symbol is written in its first and its last cell, so that both neighbours of any place are
read at once; what stands in between is of the past. Words are in order of falling counts, so the count of
the word at a position is found among the few positions where it changes.

A *pair* is made once, when the younger of its symbols is made: with its count, and with a list of all its
positions in order. From then on it can only lose places, so its list is never extended; a place that is
lost is noticed when the list is used, and a count is exact at all times. The *queue* is a heap by count at
the time of entry; a pair that comes up with a lower count by now is put back at its place.
"""

from typing import NamedTuple

from tokenizer.kernels.arrays import Bytes, Int32, Int64, UInt32, UInt64

SEPARATOR = -1

NUM_PAIRS, NUM_QUEUED, NUM_POSITIONS, NUM_TOKENS, NUM_MERGES = 0, 1, 2, 3, 4
PAIRS_NEEDED, POSITIONS_NEEDED = 5, 6
COUNTERS = 7
"""What stands where in the array of counters."""

MADE_ALL, NO_PAIRS, NO_ROOM = 0, 1, 2


class Words(NamedTuple):
    """The training text.

    Attributes:
        cells: the symbol that begins or ends in a cell, or SEPARATOR.
        text: the byte of each cell; 0 for separators.
        step_at: where the count of words changes, in order; the last one is behind all words.
        step_count: the words' count from there on.
    """

    cells: Int32
    text: Bytes
    step_at: Int64
    step_count: Int64


class Tokens(NamedTuple):
    """The symbols, by id.

    Attributes:
        at: a place in the text where the symbol's bytes stand, or -1 for a byte that stands nowhere.
        length: how many bytes it has.
        prefix: its first eight bytes as a big-endian number.
        left: the symbols that it was made of; -1 for bytes.
        right: the same.
    """

    at: Int64
    length: Int32
    prefix: UInt64
    left: Int32
    right: Int32


class Pairs(NamedTuple):
    """Pairs of symbols, in the order in which they were made.

    Attributes:
        left: the first symbol.
        right: the second symbol.
        frequency: how often the pair stands in the text, at this time; 0 for those that are merged.
        first: where its list of positions begins.
        number: how many positions are in its list.
        slots: pairs by hash of their symbols, -1 where empty.
        queue: indices of pairs, as a heap.
        queue_count: the count with which each entered it.
        positions: all lists.
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


class Work(NamedTuple):
    """Working memory of one merge: what stands around its places.

    Attributes:
        before: the symbol before each place, or SEPARATOR.
        behind: the symbol behind it.
        count_before: by symbol, how often it stands before a place; zeros between merges.
        count_behind: the same, behind.
        slot_before: by symbol, how many places; then where its positions go.
        slot_behind: the same, behind.
        seen_before: the symbols that stand before a place.
        seen_behind: the same, behind.
    """

    before: Int32
    behind: Int32
    count_before: Int64
    count_behind: Int64
    slot_before: Int64
    slot_behind: Int64
    seen_before: Int32
    seen_behind: Int32


class Rules(NamedTuple):
    """What may be merged, and which pair comes first.

    Attributes:
        min_count: pairs that occur less often are not merged.
        max_length: longer symbols are not made.
        lexicographic: whether equal counts are decided by the greater bytes; else by the lower ids.
        forbidden: bytes that no symbol may have, one after the other.
        forbidden_offsets: where each begins.
    """

    min_count: int
    max_length: int
    lexicographic: bool
    forbidden: Bytes
    forbidden_offsets: Int64
