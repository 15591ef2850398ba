"""Training by joining pairs of pieces: the pair of neighbours with the best score is joined, everywhere.

Joining one costs time in proportion to its places and to the pairs of its two symbols, whose scores change
with the symbols' frequencies. A tournament tree over the pairs has the best one at its root.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32, Int64
from tokmill.tokenizer.kernels.pair_order import LIKELIHOOD, choose
from tokmill.tokenizer.kernels.pair_table import NUM_PAIRS, Cells, Pairs, Places, Symbols, add_place, slot_of


@kernel(inline=True)
def renew(pair: int, pairs: Pairs, symbols: Symbols, least: int, rule: int) -> None:
    """Compute a pair's score anew, and its way up the tree, as far as that depends on it."""
    count = pairs.count[pair]
    open_ = count >= least and pairs.closed[pair] == 0
    if rule == LIKELIHOOD and open_:
        left, right = symbols.frequency[pairs.left[pair]], symbols.frequency[pairs.right[pair]]
        pairs.score[pair] = np.float64(count) / np.float64(left) / np.float64(right)
    size = pairs.tree.shape[0] // 2
    node = size + pair
    pairs.tree[node] = pair if open_ else -1
    node //= 2
    while node > 0:
        one, other = np.int64(pairs.tree[2 * node]), np.int64(pairs.tree[2 * node + 1])
        best, last = choose(one, other, pairs, symbols, rule), np.int64(pairs.tree[node])
        pairs.tree[node] = best
        if best == last and best != pair:  # no node above has to do with this pair
            break
        node //= 2


@kernel
def renew_all(pairs: Pairs, symbols: Symbols, counters: Int64, least: int, rule: int) -> None:
    """Compute all scores anew, and the whole tree."""
    size = pairs.tree.shape[0] // 2
    for pair in range(size):
        pairs.tree[size + pair] = -1
        if pair < counters[NUM_PAIRS] and pairs.count[pair] >= least and pairs.closed[pair] == 0:
            pairs.tree[size + pair] = pair
            left, right = symbols.frequency[pairs.left[pair]], symbols.frequency[pairs.right[pair]]
            pairs.score[pair] = np.float64(pairs.count[pair]) / np.float64(left) / np.float64(right)
    for node in range(size - 1, 0, -1):
        one, other = np.int64(pairs.tree[2 * node]), np.int64(pairs.tree[2 * node + 1])
        pairs.tree[node] = choose(one, other, pairs, symbols, rule)


@kernel
def set_closed(pair: int, pairs: Pairs, symbols: Symbols, least: int, rule: int) -> None:
    """Close a pair, so that it is never joined."""
    pairs.closed[pair] = 1
    renew(pair, pairs, symbols, least, rule)


@kernel
def join_pair(
    cells: Cells,
    pairs: Pairs,
    places: Places,
    symbols: Symbols,
    counters: Int64,
    at: Int32,
    pair: int,
    made: int,
    least: int,
    rule: int,
) -> None:
    """Join a pair at all of its places, and renew the pairs around them.

    Args:
        cells: changed.
        pairs: with room for two more pairs per place of this one.
        places: with room for two more places per place of this one.
        symbols: the frequencies change.
        counters: shape (2,); changed.
        at: the pair's places in order, since pairs of one symbol overlap and are joined from the left.
        pair: the pair.
        made: the symbol that it becomes.
        least: pairs that occur less often are not joined.
        rule: which pair comes first; by LIKELIHOOD, scores depend on the symbols' frequencies.
    """
    left, right = np.int64(pairs.left[pair]), np.int64(pairs.right[pair])
    pairs.place[pair] = -1
    for k in range(at.shape[0]):
        cell = np.int64(at[k])
        after = np.int64(cells.after[cell])
        if cells.symbol[cell] != left or after < 0 or cells.symbol[after] != right:
            continue
        weight, before, behind = (
            cells.weight[cell],
            np.int64(cells.before[cell]),
            np.int64(cells.after[after]),
        )
        pairs.count[pair] -= weight
        symbols.frequency[left] -= weight
        symbols.frequency[right] -= weight
        symbols.frequency[made] += weight
        cells.symbol[cell], cells.symbol[after] = made, -1
        cells.after[cell] = behind
        if behind >= 0:
            cells.before[behind] = cell
            other = np.int64(cells.symbol[behind])
            old = np.int64(pairs.slots[slot_of(pairs, right, other)])
            pairs.count[old] -= weight
            new = add_place(pairs, places, symbols, counters, made, other, cell, weight)
            if rule != LIKELIHOOD:
                renew(old, pairs, symbols, least, rule)
                renew(new, pairs, symbols, least, rule)
        if before >= 0:
            other = np.int64(cells.symbol[before])
            old = np.int64(pairs.slots[slot_of(pairs, other, left)])
            pairs.count[old] -= weight
            new = add_place(pairs, places, symbols, counters, other, made, before, weight)
            if rule != LIKELIHOOD:
                renew(old, pairs, symbols, least, rule)
                renew(new, pairs, symbols, least, rule)
    renew(pair, pairs, symbols, least, rule)
    if rule == LIKELIHOOD:
        renew_around(left, pairs, symbols, least)
        renew_around(right, pairs, symbols, least)
        renew_around(made, pairs, symbols, least)


@kernel
def renew_around(symbol: int, pairs: Pairs, symbols: Symbols, least: int) -> None:
    """Renew all pairs of a symbol, whose frequency has changed."""
    pair = np.int64(symbols.of_left[symbol])
    while pair >= 0:
        renew(pair, pairs, symbols, least, LIKELIHOOD)
        pair = np.int64(pairs.next_of_left[pair])
    pair = np.int64(symbols.of_right[symbol])
    while pair >= 0:
        renew(pair, pairs, symbols, least, LIKELIHOOD)
        pair = np.int64(pairs.next_of_right[pair])


@kernel
def first_of_best(cells: Cells, pairs: Pairs, places: Places, nodes: Int64) -> int:
    """Return, of the pairs that are as frequent as the best one, the one that occurs first; -1 for none.

    Args:
        cells: in the order of the text.
        pairs: their tree goes by frequency.
        places: of the pairs, outdated ones included.
        nodes: shape (64,), scratch.
    """
    size, best = pairs.tree.shape[0] // 2, np.int64(pairs.tree[1])
    if best < 0:
        return best
    most, found, first, height = pairs.count[best], np.int64(-1), np.int64(cells.symbol.shape[0]), 1
    nodes[0] = 1
    while height > 0:
        height -= 1
        node = nodes[height]
        pair = np.int64(pairs.tree[node])
        if pair < 0 or pairs.count[pair] < most:
            continue
        if node < size:
            nodes[height], nodes[height + 1] = 2 * node, 2 * node + 1
            height += 2
            continue
        cell = first_cell(pair, cells, pairs, places)
        if cell < first:
            found, first = pair, cell
    return found


@kernel(inline=True)
def first_cell(pair: int, cells: Cells, pairs: Pairs, places: Places) -> int:
    """Return the first cell at which a pair occurs now."""
    found, place = np.int64(cells.symbol.shape[0]), np.int64(pairs.place[pair])
    while place >= 0:
        cell = np.int64(places.cell[place])
        after = np.int64(cells.after[cell])
        live = after >= 0 and cells.symbol[cell] == pairs.left[pair]
        if live and cell < found and cells.symbol[after] == pairs.right[pair]:
            found = cell
        place = np.int64(places.older[place])
    return found
