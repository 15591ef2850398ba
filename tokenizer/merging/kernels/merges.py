"""Training by merges: repeatedly join the most frequent pair of neighbouring symbols everywhere.

Joining a pair costs time in proportion to its places. Around them, (x, left) becomes (x, token) and (right,
y) becomes (token, y): counts are collected by x and by y, so a changed or new pair is looked up once
per merge, not once per place. A separator is collected like any x or y, because an unpredictable branch
would cost more; it makes no pair. See `state` for the data.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64
from tokmill.tokenizer.jit.intrinsics import prefetch
from tokmill.tokenizer.merging.kernels.pair_lists import AHEAD
from tokmill.tokenizer.merging.kernels.pair_queue import make_pair, next_pair, rise, step_of, take_off
from tokmill.tokenizer.merging.kernels.state import (
    HOLE,
    LIKELIHOOD,
    MADE_ALL,
    NO_BYTES,
    NO_PAIRS,
    NO_ROOM,
    NUM_BYTES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_QUEUED,
    NUM_TOKENS,
    PAUSED,
    SEPARATOR,
    THRESHOLD,
    Pairs,
    Rules,
    Side,
    Tokens,
    Words,
    of_last_cell,
    symbol_in,
)

_EIGHT = np.uint64(8)
_BEFORE, _BEHIND, JOINED, SEEN = 0, 1, 2, 3
"""Indices of what a merge met: symbols on both sides, and how often the pair was joined."""


@kernel(inline=True)
def make_token(tokens: Tokens, rules: Rules, counters: Int64, left: int, right: int) -> int:
    """Make the symbol of a merge; return its id."""
    token, at = counters[NUM_TOKENS], counters[NUM_BYTES]
    middle, begin = at + np.int64(tokens.length[left]), tokens.at[right] + rules.mark
    end = middle + np.int64(tokens.length[right]) - rules.mark
    for i in range(at, middle):
        tokens.data[i] = tokens.data[tokens.at[left] + i - at]
    for i in range(middle, end):
        tokens.data[i] = tokens.data[begin + i - middle]
    prefix = np.uint64(0)
    for i in range(at, at + 8):
        prefix = prefix << _EIGHT | np.uint64(tokens.data[i] if i < end else 0)
    tokens.left[token], tokens.right[token] = left, right
    tokens.at[token], tokens.length[token], tokens.prefix[token] = at, end - at, prefix
    tokens.width[token] = tokens.width[left] + tokens.width[right]
    counters[NUM_TOKENS] += 1
    counters[NUM_BYTES] = end
    return token


@kernel(inline=True)
def collect(side: Side, symbol: int, count: int, num_seen: int) -> int:
    """Count a symbol next to a place; return the number of different symbols so far."""
    row = np.uint64(symbol + 1)
    number = side.rows[row, 1]
    side.seen[np.uint64(num_seen)] = symbol
    side.rows[row, 0] += count
    side.rows[row, 1] = number + 1
    return num_seen + (1 if number == 0 else 0)


@kernel(inline=True)
def join_places(
    words: Words, tokens: Tokens, pairs: Pairs, before: Side, behind: Side, pair: int, token: int, seen: Int64
) -> int:
    """Join a pair at all of its places, and count the symbols around them; return the number of places.

    Positions where the pair still occurred are moved to the front of its list.
    """
    cells, left, right = words.cells, np.int64(pairs.left[pair]), np.int64(pairs.right[pair])
    left_width, width = np.int64(tokens.width[left]), np.int64(tokens.width[token])
    left_end = left if left_width == 1 else of_last_cell(left)
    first, last = pairs.first[pair], pairs.first[pair] + pairs.number[pair] - 1
    places, step, num_before, num_behind = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for k in range(first, last + 1):
        prefetch(cells, np.int64(pairs.positions[min(k + AHEAD, last)]))
        at = np.int64(pairs.positions[k])
        middle, end = at + left_width, at + width
        if cells[at] != left or cells[middle - 1] != left_end or cells[middle] != right:
            continue
        step = step_of(words, at, step)
        earlier, later = symbol_in(np.int64(cells[at - 1])), np.int64(cells[end])
        if later == left and cells[end + left_width] == right:
            later = token  # joined next
        cells[middle - 1], cells[middle] = HOLE, HOLE
        cells[at], cells[end - 1] = token, of_last_cell(token)
        pairs.positions[first + places] = at
        before.symbols[places], behind.symbols[places] = earlier, later
        places += 1
        num_before = collect(before, earlier, words.step_count[step], num_before)
        num_behind = collect(behind, later, words.step_count[step], num_behind)
    seen[_BEFORE], seen[_BEHIND] = num_before, num_behind
    return places


@kernel(inline=True)
def renew_pairs(
    tokens: Tokens,
    pairs: Pairs,
    rules: Rules,
    counters: Int64,
    side: Side,
    num_seen: int,
    token: int,
    is_before: bool,
) -> None:
    """Lower the counts of the pairs that a merge broke on one side, and make those that it created.

    Two neighbouring new symbols are counted after the first of the two.
    """
    left, right = np.int64(tokens.left[token]), np.int64(tokens.right[token])
    room = rules.max_length - np.int64(tokens.length[token])
    for k in range(num_seen):
        symbol = np.int64(side.seen[k])
        count, number = side.rows[symbol + 1, 0], side.rows[symbol + 1, 1]
        side.rows[symbol + 1, 0], side.rows[symbol + 1, 1] = 0, -1
        if symbol == SEPARATOR or (is_before and symbol == token):
            continue
        broken = left if symbol == token else symbol
        take_off(pairs, symbol if is_before else right, left if is_before else broken, count)
        if count >= counters[THRESHOLD] and tokens.length[symbol] <= room:
            one, other = (symbol, token) if is_before else (token, symbol)
            side.rows[symbol + 1, 1] = make_pair(pairs, counters, one, other, count, number)


@kernel(inline=True)
def list_place(pairs: Pairs, side: Side, symbol: int, position: int) -> None:
    """Write a position into the list of a symbol's pair, if there is one."""
    row = np.uint64(symbol + 1)
    place = side.rows[row, 1]
    pairs.positions[np.uint64(place if place >= 0 else pairs.positions.shape[0] - 1)] = position
    side.rows[row, 1] = place + (1 if place >= 0 else 0)


@kernel(inline=True)
def list_neighbours(
    tokens: Tokens, pairs: Pairs, before: Side, behind: Side, first: int, places: int
) -> None:
    """Write the positions of the pairs that a merge created."""
    for k in range(places):
        at = np.int64(pairs.positions[first + k])
        earlier, later = np.int64(before.symbols[k]), np.int64(behind.symbols[k])
        list_place(pairs, before, earlier, at - np.int64(tokens.width[max(earlier, 0)]))
        list_place(pairs, behind, later, at)


@kernel(inline=True)
def forget(side: Side, num_seen: int) -> None:
    """Clear the counts of the symbols that were seen."""
    for k in range(num_seen):
        side.rows[side.seen[k] + 1, 1] = 0


@kernel(inline=True)
def merge_pair(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    before: Side,
    behind: Side,
    rules: Rules,
    counters: Int64,
    seen: Int64,
    pair: int,
) -> None:
    """Join a pair everywhere, and update the pairs around it; new ones are not queued."""
    token = make_token(tokens, rules, counters, np.int64(pairs.left[pair]), np.int64(pairs.right[pair]))
    known = counters[NUM_PAIRS]
    places = join_places(words, tokens, pairs, before, behind, pair, token, seen)
    if rules.ties == LIKELIHOOD:
        for k in range(seen[_BEFORE]):
            seen[JOINED] += before.rows[before.seen[k] + 1, 0]
    renew_pairs(tokens, pairs, rules, counters, before, seen[_BEFORE], token, True)
    renew_pairs(tokens, pairs, rules, counters, behind, seen[_BEHIND], token, False)
    if counters[NUM_PAIRS] > known:
        list_neighbours(tokens, pairs, before, behind, pairs.first[pair], places)
    forget(before, seen[_BEFORE])
    forget(behind, seen[_BEHIND])
    pairs.frequency[pair], pairs.number[pair] = 0, 0


@kernel(inline=True)
def queue_pairs(tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64, known: int) -> None:
    """Put the newest pairs into the queue, which has those before them."""
    for made in range(known, counters[NUM_PAIRS]):
        rise(tokens, pairs, rules, counters[NUM_QUEUED], made, pairs.frequency[made])
        counters[NUM_QUEUED] += 1


@kernel(inline=True)
def lacks_room(pairs: Pairs, counters: Int64, pair: int) -> bool:
    """Whether the pairs that a merge may create could be too many."""
    number = pairs.number[pair]
    made = 2 * min(number, counters[NUM_TOKENS], pairs.frequency[pair] // counters[THRESHOLD]) + 1
    return (
        counters[NUM_PAIRS] + made > pairs.frequency.shape[0]
        or counters[NUM_POSITIONS] + 2 * number >= pairs.positions.shape[0]
    )


@kernel(inline=True)
def lacks_bytes(tokens: Tokens, pairs: Pairs, counters: Int64, pair: int) -> bool:
    """Whether the bytes of the next symbol are too many."""
    length = np.int64(tokens.length[pairs.left[pair]]) + np.int64(tokens.length[pairs.right[pair]])
    return counters[NUM_BYTES] + length > tokens.data.shape[0]


@kernel
def merge_pairs(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    before: Side,
    behind: Side,
    rules: Rules,
    counters: Int64,
    seen: Int64,
    until: int,
    max_places: int,
) -> int:
    """Merge pairs, the most frequent first, until there are `until` symbols, or `max_places` were changed.

    Returns MADE_ALL, PAUSED, NO_PAIRS if none is left that reaches the threshold, NO_ROOM if there may be too
    little for the pairs of the next merge, or NO_BYTES if there is for its symbol.
    """
    places = np.int64(0)
    while counters[NUM_TOKENS] < until:
        if places >= max_places:
            return PAUSED
        pair = next_pair(words, tokens, pairs, rules, counters)
        if pair < 0:
            return NO_PAIRS
        if lacks_room(pairs, counters, pair):
            return NO_ROOM
        if lacks_bytes(tokens, pairs, counters, pair):
            return NO_BYTES
        places, known = places + pairs.number[pair], counters[NUM_PAIRS]
        # it stays at the head of the queue with its old count, and goes when the next one is looked for
        merge_pair(words, tokens, pairs, before, behind, rules, counters, seen, pair)
        queue_pairs(tokens, pairs, rules, counters, known)
    return MADE_ALL
