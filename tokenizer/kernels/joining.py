"""Training by joining pairs of pieces: the pair of neighbours with the best score is joined, everywhere.

Joining one costs time in proportion to its places and to the pairs of its two symbols, whose scores change
with the symbols' frequencies. A tournament tree over the pairs has the best one at its root.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32, Int64
from tokmill.tokenizer.kernels.pair_table import NUM_PAIRS, Cells, Pairs, Places, Symbols, add_place, slot_of

LIKELIHOOD, FREQUENCY, GREATEST_PAIR, LOWEST_SYMBOLS = 0, 1, 2, 3
"""Rules of which pair comes first: the greatest likelihood, then the greatest frequency; or that alone.

Of equal pairs that one comes first whose joined piece has the smaller bytes, then the one with the shorter
left part; by GREATEST_PAIR that with the greatest bytes of the left part, then of the right one; by
LOWEST_SYMBOLS that with the lowest left symbol, then the lowest right one.
"""

_NEAR = 1e-9  # floating point decides between scores that differ by more; integers decide between others
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel(inline=True)
def product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the upper and the lower 64 bits of a product of two words."""
    a_low, a_high, b_low, b_high = a & _LOWER, a >> _HALF, b & _LOWER, b >> _HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF)
    other_middle = a_low * b_high + (middle & _LOWER)
    return a_high * b_high + (middle >> _HALF) + (other_middle >> _HALF), other_middle << _HALF | low & _LOWER


@kernel(inline=True)
def triple(one: int, two: int, three: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the 192 bits of a product of three numbers below 2^63, the highest first."""
    high, low = product(np.uint64(one), np.uint64(two))
    carried, lowest = product(low, np.uint64(three))
    highest, middle = product(high, np.uint64(three))
    middle += carried
    return highest + (np.uint64(1) if middle < carried else np.uint64(0)), middle, lowest


@kernel(inline=True)
def joined_byte(symbols: Symbols, left: int, right: int, i: int) -> int:
    """Return a byte of the piece that two symbols make; -1 behind its end."""
    at, end = symbols.at[left], symbols.end[left]
    if at + i < end:
        return np.int64(symbols.data[at + i])
    i += symbols.at[right] + symbols.mark - (end - at)
    return np.int64(symbols.data[i]) if i < symbols.end[right] else np.int64(-1)


@kernel
def comes_first(one: int, other: int, pairs: Pairs, symbols: Symbols) -> bool:
    """Whether a pair comes first: by its piece's size, then its bytes, then the length of its left part."""
    size = symbols.size
    difference = size[pairs.left[one]] + size[pairs.right[one]]
    difference -= size[pairs.left[other]] + size[pairs.right[other]]
    if difference != 0:
        return difference < 0
    i = 0
    while True:
        a = joined_byte(symbols, np.int64(pairs.left[one]), np.int64(pairs.right[one]), i)
        b = joined_byte(symbols, np.int64(pairs.left[other]), np.int64(pairs.right[other]), i)
        if a != b:
            return a < b
        if a < 0:
            break
        i += 1
    first, second = pairs.left[one], pairs.left[other]
    return symbols.end[first] - symbols.at[first] < symbols.end[second] - symbols.at[second]


@kernel(inline=True)
def compare_symbols(one: int, other: int, symbols: Symbols) -> int:
    """Compare the bytes of two symbols: below 0 if those of `one` are smaller, 0 if they are equal."""
    at, its = symbols.at[one], symbols.at[other]
    length, its_length = symbols.end[one] - at, symbols.end[other] - its
    for i in range(min(length, its_length)):
        if symbols.data[at + i] != symbols.data[its + i]:
            return np.int64(symbols.data[at + i]) - np.int64(symbols.data[its + i])
    return length - its_length


@kernel(inline=True)
def is_greater_pair(one: int, other: int, pairs: Pairs, symbols: Symbols) -> bool:
    """Whether a pair has the greater left part, by bytes, or the same one and the greater right part."""
    found = compare_symbols(np.int64(pairs.left[one]), np.int64(pairs.left[other]), symbols)
    if found == 0:
        found = compare_symbols(np.int64(pairs.right[one]), np.int64(pairs.right[other]), symbols)
    return found > 0


@kernel(inline=True)
def has_lower_symbols(one: int, other: int, pairs: Pairs) -> bool:
    """Whether a pair has a lower left symbol than another one, or the same and a lower right one."""
    if pairs.left[one] != pairs.left[other]:
        return pairs.left[one] < pairs.left[other]
    return pairs.right[one] < pairs.right[other]


@kernel
def is_better(one: int, other: int, pairs: Pairs, symbols: Symbols, rule: int) -> bool:
    """Whether a pair is joined before another one."""
    if rule == LIKELIHOOD:
        difference = pairs.score[one] - pairs.score[other]
        if abs(difference) > _NEAR * (pairs.score[one] + pairs.score[other]):
            return difference > 0
        f = symbols.frequency
        mine = triple(pairs.count[one], f[pairs.left[other]], f[pairs.right[other]])
        theirs = triple(pairs.count[other], f[pairs.left[one]], f[pairs.right[one]])
        if mine != theirs:
            return mine > theirs
    if pairs.count[one] != pairs.count[other]:
        return pairs.count[one] > pairs.count[other]
    if rule == GREATEST_PAIR:
        return is_greater_pair(one, other, pairs, symbols)
    if rule == LOWEST_SYMBOLS:
        return has_lower_symbols(one, other, pairs)
    return comes_first(one, other, pairs, symbols)


@kernel(inline=True)
def choose(one: int, other: int, pairs: Pairs, symbols: Symbols, rule: int) -> int:
    """Return the better of two pairs, either of which may be none (-1)."""
    if one < 0 or other < 0:
        return max(one, other)
    return one if is_better(one, other, pairs, symbols, rule) else other


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
    """Join a pair at all of its places, and renew the pairs around them."""
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
    """Return, of the pairs that are as frequent as the best one, the one that occurs first; -1 for none."""
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
