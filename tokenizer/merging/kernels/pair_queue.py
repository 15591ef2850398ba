"""Pairs in order of frequency, and pairs by their symbols; see `state`."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64
from tokmill.tokenizer.merging.kernels.state import (
    FIRST_SEEN,
    LEXICOGRAPHIC_MAX,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_QUEUED,
    SHORTEST_PIECE,
    THRESHOLD,
    Pairs,
    Rules,
    Tokens,
    Words,
)

_HALF = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@kernel(inline=True)
def step_of(words: Words, position: int, step: int) -> int:
    """Return the step that a position lies in, which is `step` or a later one."""
    if words.step_at[step + 1] > position:
        return step
    low, high = step + 1, words.step_count.shape[0] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if words.step_at[middle] <= position:
            low = middle
        else:
            high = middle - 1
    return low


@kernel(inline=True)
def is_greater(tokens: Tokens, first: int, second: int) -> bool:
    """Whether one symbol's bytes are greater than another's."""
    if tokens.prefix[first] != tokens.prefix[second]:
        return tokens.prefix[first] > tokens.prefix[second]
    for i in range(8, min(tokens.length[first], tokens.length[second])):
        one, other = tokens.data[tokens.at[first] + i], tokens.data[tokens.at[second] + i]
        if one != other:
            return one > other
    return tokens.length[first] > tokens.length[second]


@kernel(inline=True)
def joined_byte(tokens: Tokens, rules: Rules, left: int, right: int, i: int) -> int:
    """Return a byte of the piece that two symbols make; -1 after its end."""
    length = np.int64(tokens.length[left])
    if i < length:
        return np.int64(tokens.data[tokens.at[left] + i])
    i += rules.mark - length
    return np.int64(tokens.data[tokens.at[right] + i]) if i < tokens.length[right] else np.int64(-1)


@kernel(inline=True)
def num_characters(tokens: Tokens, symbol: int) -> int:
    """Count the characters of a symbol."""
    number, at = np.int64(0), tokens.at[symbol]
    for i in range(at, at + tokens.length[symbol]):
        number += 1 if tokens.data[i] & 0xC0 != 0x80 else 0
    return number


@kernel
def makes_smaller_piece(tokens: Tokens, pairs: Pairs, rules: Rules, first: int, second: int) -> bool:
    """Whether a pair makes the piece of smaller bytes, or the same one of a shorter left part.

    By SHORTEST_PIECE that of fewer characters comes before others.
    """
    left, right = np.int64(pairs.left[first]), np.int64(pairs.right[first])
    its_left, its_right = np.int64(pairs.left[second]), np.int64(pairs.right[second])
    if rules.ties == SHORTEST_PIECE:
        number = num_characters(tokens, left) + num_characters(tokens, right)
        its_number = num_characters(tokens, its_left) + num_characters(tokens, its_right)
        if number != its_number:
            return number < its_number
    i, byte = np.int64(0), np.int64(0)
    while byte >= 0:
        byte = joined_byte(tokens, rules, left, right, i)
        its_byte = joined_byte(tokens, rules, its_left, its_right, i)
        if byte != its_byte:
            return byte < its_byte
        i += 1
    return tokens.length[left] < tokens.length[its_left]


@kernel(inline=True)
def wins(tokens: Tokens, pairs: Pairs, rules: Rules, first: int, second: int) -> bool:
    """Whether the first of two equally frequent pairs is merged before the second."""
    if rules.ties == FIRST_SEEN:
        return pairs.positions[pairs.first[first]] < pairs.positions[pairs.first[second]]
    if rules.ties > FIRST_SEEN:
        return makes_smaller_piece(tokens, pairs, rules, first, second)
    one, other = pairs.left[first], pairs.left[second]
    if one == other:
        one, other = pairs.right[first], pairs.right[second]
    return is_greater(tokens, one, other) if rules.ties == LEXICOGRAPHIC_MAX else one < other


@kernel(inline=True)
def precedes(
    tokens: Tokens,
    pairs: Pairs,
    rules: Rules,
    pair: int,
    count: int,
    place: int,
) -> bool:
    """Whether a pair with a count is merged before the one at a place in the queue."""
    if count != pairs.queue_count[place]:
        return count > pairs.queue_count[place]
    return wins(tokens, pairs, rules, pair, np.int64(pairs.queue[place]))


@kernel(inline=True)
def sink(tokens: Tokens, pairs: Pairs, rules: Rules, size: int, hole: int, pair: int, count: int) -> None:
    """Put a pair where it belongs in the queue, at or below a hole."""
    child = 2 * hole + 1
    while child < size:
        other = child + 1
        if other < size and precedes(
            tokens, pairs, rules, np.int64(pairs.queue[other]), pairs.queue_count[other], child
        ):
            child = other
        if precedes(tokens, pairs, rules, pair, count, child):
            break
        pairs.queue[hole], pairs.queue_count[hole] = pairs.queue[child], pairs.queue_count[child]
        hole = child
        child = 2 * hole + 1
    pairs.queue[hole], pairs.queue_count[hole] = pair, count


@kernel(inline=True)
def rise(tokens: Tokens, pairs: Pairs, rules: Rules, hole: int, pair: int, count: int) -> None:
    """Put a pair where it belongs in the queue, at or above a hole."""
    while hole > 0:
        parent = (hole - 1) >> 1
        if not precedes(tokens, pairs, rules, pair, count, parent):
            break
        pairs.queue[hole], pairs.queue_count[hole] = pairs.queue[parent], pairs.queue_count[parent]
        hole = parent
    pairs.queue[hole], pairs.queue_count[hole] = pair, count


@kernel(inline=True)
def mix_pair(left: int, right: int) -> np.uint64:
    """Hash a pair."""
    mixed = (np.uint64(left) << _HALF | np.uint64(right)) * _MULTIPLIER
    return mixed ^ mixed >> _HALF


@kernel(inline=True)
def find_slot(pairs: Pairs, left: int, right: int) -> int:
    """Return the slot of a pair, or the empty one where it belongs."""
    mask = np.int64(pairs.slots.shape[0] - 1)
    slot = np.int64(mix_pair(left, right) & np.uint64(mask))
    while pairs.slots[slot] >= 0:
        pair = pairs.slots[slot]
        if pairs.left[pair] == left and pairs.right[pair] == right:
            break
        slot = (slot + 1) & mask
    return slot


@kernel(inline=True)
def make_pair(pairs: Pairs, counters: Int64, left: int, right: int, count: int, number: int) -> int:
    """Make a pair with room for its positions, outside of the queue; return where its positions go."""
    pair, first = counters[NUM_PAIRS], counters[NUM_POSITIONS]
    pairs.left[pair], pairs.right[pair] = left, right
    pairs.frequency[pair] = count
    pairs.first[pair], pairs.number[pair] = first, number
    pairs.slots[find_slot(pairs, left, right)] = pair
    counters[NUM_PAIRS] += 1
    counters[NUM_POSITIONS] += number
    return first


@kernel(inline=True)
def take_off(pairs: Pairs, left: int, right: int, count: int) -> None:
    """Lower a pair's count, if there is such a pair."""
    pair = pairs.slots[find_slot(pairs, left, right)]
    if pair >= 0:
        pairs.frequency[pair] -= count


@kernel
def enter_pairs(pairs: Pairs, counters: Int64) -> None:
    """Put all pairs into the slots, which are empty."""
    for pair in range(counters[NUM_PAIRS]):
        pairs.slots[find_slot(pairs, np.int64(pairs.left[pair]), np.int64(pairs.right[pair]))] = pair


@kernel
def fill_queue(tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64) -> None:
    """Make the queue of all pairs."""
    size = counters[NUM_PAIRS]
    for pair in range(size):
        pairs.queue[pair], pairs.queue_count[pair] = pair, pairs.frequency[pair]
    for hole in range((size >> 1) - 1, -1, -1):
        pair = np.int64(pairs.queue[hole])
        sink(tokens, pairs, rules, size, hole, pair, pairs.queue_count[hole])
    counters[NUM_QUEUED] = size


@kernel(inline=True)
def is_forbidden(tokens: Tokens, rules: Rules, left: int, right: int) -> bool:
    """Whether two symbols would make forbidden bytes."""
    first, length = tokens.length[left], tokens.length[left] + tokens.length[right]
    for k in range(rules.forbidden_offsets.shape[0] - 1):
        start = rules.forbidden_offsets[k]
        if rules.forbidden_offsets[k + 1] - start != length:
            continue
        same = True
        for i in range(length):
            part = tokens.at[left] + i if i < first else tokens.at[right] + i - first
            same = same and tokens.data[part] == rules.forbidden[start + i]
        if same:
            return True
    return False


@kernel(inline=True)
def stands_first(words: Words, tokens: Tokens, pairs: Pairs, pair: int) -> bool:
    """Whether a pair still stands at the first position of its list."""
    at = np.int64(pairs.positions[pairs.first[pair]])
    middle = at + np.int64(tokens.width[pairs.left[pair]])
    return words.cells[at] == pairs.left[pair] and words.cells[middle] == pairs.right[pair]


@kernel(inline=True)
def has_moved(words: Words, tokens: Tokens, pairs: Pairs, rules: Rules, pair: int) -> bool:
    """Whether a pair has lost the place that decides its ties; if so, its list begins at the next one left.

    The pair must be at the head of the queue and have a place.
    """
    if rules.ties != FIRST_SEEN or stands_first(words, tokens, pairs, pair):
        return False
    while not stands_first(words, tokens, pairs, pair):
        pairs.first[pair] += 1
        pairs.number[pair] -= 1
    return True


@kernel(inline=True)
def next_pair(words: Words, tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64) -> int:
    """Move the most frequent pair that may be merged to the head of the queue; return it, or -1."""
    while counters[NUM_QUEUED] > 0:
        pair, size = np.int64(pairs.queue[0]), counters[NUM_QUEUED]
        count = pairs.frequency[pair]
        if count == pairs.queue_count[0] and not has_moved(words, tokens, pairs, rules, pair):
            if not is_forbidden(tokens, rules, pairs.left[pair], pairs.right[pair]):
                return pair
            count = np.int64(0)
        if count < counters[THRESHOLD]:
            size -= 1
            counters[NUM_QUEUED] = size
            pair, count = np.int64(pairs.queue[size]), pairs.queue_count[size]
        sink(tokens, pairs, rules, size, np.int64(0), pair, count)
    return -1


@kernel
def first_pair(words: Words, tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64) -> int:
    """Return the pair that is merged next, -1 if there is none that reaches the threshold."""
    return next_pair(words, tokens, pairs, rules, counters)
