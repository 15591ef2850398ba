"""The pairs of neighbouring symbols, and where they occur, while a training joins them.

A word is a chain of cells, each with a symbol; a pair has a list of the places where it occurred, some of
them outdated, since joining another pair leaves it as it is.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, Float64, Int32, Int64

NUM_PAIRS, NUM_PLACES = 0, 1  # what the counters count

_HALF = np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Cells(NamedTuple):
    """Words as chains of symbols.

    Attributes:
        symbol: shape (num_cells,); -1 where a cell has been joined with the one before.
        before: shape (num_cells,); the cell before in the word, -1 for none.
        after: shape (num_cells,); the cell after it.
        weight: shape (num_cells,); how often the word occurs.
    """

    symbol: Int32
    before: Int32
    after: Int32
    weight: Int64


class Symbols(NamedTuple):
    """Pieces, by number.

    Attributes:
        frequency: shape (most symbols,).
        of_left: shape (most symbols,); the newest pair that it is the left part of, -1 for none.
        of_right: the same, as the right part.
        at: where its bytes begin in `data`.
        end: where they end.
        data: the pieces' bytes.
        mark: how many bytes before the text of a right part say that it continues a word.
        size: shape (most symbols,); of equally frequent pairs that with the smaller sum of sizes comes first.
    """

    frequency: Int64
    of_left: Int32
    of_right: Int32
    at: Int64
    end: Int64
    data: Bytes
    mark: int
    size: Int32


class Pairs(NamedTuple):
    """Pairs of neighbouring symbols; shape (most pairs,) each, but for the last two.

    Attributes:
        left: the left symbol.
        right: the right symbol, a continuing one.
        count: how often the pair occurs.
        score: its score, about.
        closed: whether it may not be joined.
        place: the newest of its places, -1 for none.
        next_of_left: the next older pair with the same left symbol, -1 for none.
        next_of_right: the next older pair with the same right symbol, -1 for none.
        slots: shape (a power of two,); a hash table of pairs, -1 where empty.
        tree: shape (2 * a power of two,); the better of the pairs below each node, -1 for none. The second
            half are leaves.
    """

    left: Int32
    right: Int32
    count: Int64
    score: Float64
    closed: Bytes
    place: Int32
    next_of_left: Int32
    next_of_right: Int32
    slots: Int32
    tree: Int32


class Places(NamedTuple):
    """Lists of places.

    Attributes:
        cell: shape (most places,); the cell of a pair's left symbol.
        older: shape (most places,); the next older place of the pair, -1 for none.
    """

    cell: Int32
    older: Int32


@kernel(inline=True)
def slot_of(pairs: Pairs, left: int, right: int) -> int:
    """Return the slot of a pair, or the empty one where it belongs."""
    mask = np.uint64(pairs.slots.shape[0] - 1)
    slot = (np.uint64(left) << _HALF | np.uint64(right)) * _MIX >> _HALF & mask
    while True:
        pair = pairs.slots[slot]
        if pair < 0 or (pairs.left[pair] == left and pairs.right[pair] == right):
            return np.int64(slot)
        slot = slot + np.uint64(1) & mask


@kernel
def fill_slots(pairs: Pairs, counters: Int64) -> None:
    """Put all pairs into an empty hash table."""
    for pair in range(counters[NUM_PAIRS]):
        pairs.slots[slot_of(pairs, np.int64(pairs.left[pair]), np.int64(pairs.right[pair]))] = pair


@kernel(inline=True)
def add_place(
    pairs: Pairs,
    places: Places,
    symbols: Symbols,
    counters: Int64,
    left: int,
    right: int,
    cell: int,
    weight: int,
) -> int:
    """Count a pair at a place; return the pair, which is made if it is new."""
    slot = slot_of(pairs, left, right)
    pair = np.int64(pairs.slots[slot])
    if pair < 0:
        pair = counters[NUM_PAIRS]
        counters[NUM_PAIRS] += 1
        pairs.slots[slot] = pair
        pairs.left[pair], pairs.right[pair], pairs.count[pair], pairs.closed[pair] = left, right, 0, 0
        pairs.place[pair] = -1
        pairs.next_of_left[pair], symbols.of_left[left] = symbols.of_left[left], pair
        pairs.next_of_right[pair], symbols.of_right[right] = symbols.of_right[right], pair
    pairs.count[pair] += weight
    place = counters[NUM_PLACES]
    counters[NUM_PLACES] += 1
    places.cell[place], places.older[place] = cell, pairs.place[pair]
    pairs.place[pair] = place
    return pair


@kernel
def count_pairs(
    cells: Cells, pairs: Pairs, places: Places, symbols: Symbols, counters: Int64, first: int
) -> int:
    """Count the pairs of cells from `first` on; return the next cell, before there are too many pairs."""
    for cell in range(first, cells.symbol.shape[0]):
        if counters[NUM_PAIRS] >= pairs.left.shape[0]:
            return cell
        after = cells.after[cell]
        if after >= 0:
            left, right = np.int64(cells.symbol[cell]), np.int64(cells.symbol[after])
            add_place(pairs, places, symbols, counters, left, right, cell, cells.weight[cell])
    return cells.symbol.shape[0]


@kernel
def list_places(pairs: Pairs, places: Places, pair: int, out: Int32) -> int:
    """Write the places of a pair, outdated ones included, and return their number."""
    number, place = 0, np.int64(pairs.place[pair])
    while place >= 0:
        out[number] = places.cell[place]
        number += 1
        place = np.int64(places.older[place])
    return number
