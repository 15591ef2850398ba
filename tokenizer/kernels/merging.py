"""BPE training: the most frequent pair of neighbouring symbols is joined everywhere, again and again.

Joining a pair costs time in proportion to its places. Around them, (x, left) becomes (x, token) and (right,
y) becomes (token, y): counts are collected by x and by y, so a pair that loses or is made is looked up once
a merge, not once a place. See `training_state` for the data.
"""

import numpy as np

from tokenizer.kernels.arrays import Int32, Int64
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pair_queue import (
    make_pair,
    next_pair,
    rise,
    step_of,
    take_off,
)
from tokenizer.kernels.training_state import (
    MADE_ALL,
    NO_PAIRS,
    NO_ROOM,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_QUEUED,
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

_EIGHT = np.uint64(8)


@kernel
def start_pairs(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    rules: Rules,
    counters: Int64,
    counts: Int64,
    numbers: Int64,
    symbol_of: Int32,
) -> None:
    """Turn the text into symbols, and make the pairs of single bytes; the queue is not filled.

    Args:
        words: with `text`, in which separators are marked in `cells`, and no symbols yet.
        tokens: with the bytes; filled.
        pairs: empty; filled.
        rules: what may be merged.
        counters: zeros; filled.
        counts: shape (65536,), zeros; scratch.
        numbers: shape (65536,), zeros; scratch.
        symbol_of: shape (256,), the symbol of each byte.
    """
    for position in range(words.cells.shape[0]):
        if words.cells[position] != SEPARATOR:
            symbol = symbol_of[words.text[position]]
            words.cells[position] = symbol
            tokens.at[symbol] = position
    step = 0
    for position in range(words.cells.shape[0] - 1):
        left, right = np.int64(words.cells[position]), np.int64(words.cells[position + 1])
        if left != SEPARATOR and right != SEPARATOR:
            step = step_of(words, position, step)
            counts[left << 8 | right] += words.step_count[step]
            numbers[left << 8 | right] += 1
    for both in range(65536):
        number, count = numbers[both], counts[both]
        numbers[both] = -1
        if number > 0 and count >= rules.min_count and rules.max_length >= 2:
            numbers[both] = make_pair(pairs, counters, both >> 8, both & 255, count, number)
    for position in range(words.cells.shape[0] - 1):
        left, right = np.int64(words.cells[position]), np.int64(words.cells[position + 1])
        if left != SEPARATOR and right != SEPARATOR and numbers[left << 8 | right] >= 0:
            pairs.positions[numbers[left << 8 | right]] = position
            numbers[left << 8 | right] += 1


@kernel(inline=True)
def make_token(words: Words, tokens: Tokens, counters: Int64, pairs: Pairs, pair: int) -> int:
    """Make the symbol of a merge; return its id."""
    left, right = pairs.left[pair], pairs.right[pair]
    at = np.int64(pairs.positions[pairs.first[pair]])
    token = counters[NUM_TOKENS]
    counters[NUM_TOKENS] += 1
    tokens.left[token], tokens.right[token] = left, right
    tokens.length[token] = tokens.length[left] + tokens.length[right]
    tokens.at[token] = at
    prefix = np.uint64(0)
    for i in range(8):
        prefix <<= _EIGHT
        if i < tokens.length[token]:
            prefix |= np.uint64(words.text[at + i])
    tokens.prefix[token] = prefix
    return token


@kernel(inline=True)
def join_places(
    words: Words, tokens: Tokens, pairs: Pairs, work: Work, pair: int, token: int, seen: Int64
) -> int:
    """Join a pair at all of its places, and note what stands around them.

    Positions where the pair still stood are moved to the front of its list.

    Args:
        words: changed.
        tokens: the symbols.
        pairs: the pair's list is changed.
        work: filled.
        pair: the pair.
        token: what it becomes.
        seen: shape (4,); receives the number of symbols before and behind, and how often, and at how many
            places, the new symbol stands behind itself.

    Returns:
        The number of places.
    """
    left, right = pairs.left[pair], pairs.right[pair]
    first, left_length = pairs.first[pair], np.int64(tokens.length[left])
    length = np.int64(tokens.length[token])
    places, step = 0, np.int64(0)
    for i in range(4):
        seen[i] = 0
    for k in range(pairs.number[pair]):
        at = np.int64(pairs.positions[first + k])
        middle, end = at + left_length, at + length
        if words.cells[at] != left or words.cells[middle - 1] != left or words.cells[middle] != right:
            continue
        step = step_of(words, at, step)
        count = words.step_count[step]
        before, behind = words.cells[at - 1], words.cells[end]
        if behind == left and words.cells[end + left_length] == right:
            behind = np.int32(token)  # joined next
        words.cells[at], words.cells[end - 1] = token, token
        pairs.positions[first + places] = at
        work.before[places], work.behind[places] = before, behind
        places += 1
        if before != SEPARATOR and before != token:
            if work.slot_before[before] == 0:
                work.seen_before[seen[0]] = before
                seen[0] += 1
            work.slot_before[before] += 1
            work.count_before[before] += count
        if behind == token:
            seen[2] += count
            seen[3] += 1
        elif behind != SEPARATOR:
            if work.slot_behind[behind] == 0:
                work.seen_behind[seen[1]] = behind
                seen[1] += 1
            work.slot_behind[behind] += 1
            work.count_behind[behind] += count
    return places


@kernel(inline=True)
def make_neighbours(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    work: Work,
    rules: Rules,
    counters: Int64,
    pair: int,
    token: int,
    seen: Int64,
) -> int:
    """Lower the counts of the pairs that a merge broke, and make those that it created.

    Clears the counts in `work`.

    Returns:
        Where the positions of the new symbol before itself go, or -1 if that is no pair.
    """
    left, right = np.int64(pairs.left[pair]), np.int64(pairs.right[pair])
    room = rules.max_length - np.int64(tokens.length[token])
    for k in range(seen[0]):
        symbol = np.int64(work.seen_before[k])
        count, number = work.count_before[symbol], work.slot_before[symbol]
        take_off(pairs, symbol, left, count)
        work.count_before[symbol], work.slot_before[symbol] = 0, -1
        if count >= rules.min_count and tokens.length[symbol] <= room:
            work.slot_before[symbol] = make_pair(pairs, counters, symbol, token, count, number)
    for k in range(seen[1]):
        symbol = np.int64(work.seen_behind[k])
        count, number = work.count_behind[symbol], work.slot_behind[symbol]
        take_off(pairs, right, symbol, count)
        work.count_behind[symbol], work.slot_behind[symbol] = 0, -1
        if count >= rules.min_count and tokens.length[symbol] <= room:
            work.slot_behind[symbol] = make_pair(pairs, counters, token, symbol, count, number)
    if seen[3] > 0:
        take_off(pairs, right, left, seen[2])
    if seen[3] > 0 and seen[2] >= rules.min_count and tokens.length[token] <= room:
        return make_pair(pairs, counters, token, token, seen[2], seen[3])
    return -1


@kernel(inline=True)
def list_places(
    tokens: Tokens, pairs: Pairs, work: Work, pair: int, token: int, places: int, itself: int
) -> None:
    """Write the positions of the pairs that a merge created."""
    for k in range(places):
        at = np.int64(pairs.positions[pairs.first[pair] + k])
        before, behind = np.int64(work.before[k]), np.int64(work.behind[k])
        if before != SEPARATOR and before != token and work.slot_before[before] >= 0:
            pairs.positions[work.slot_before[before]] = at - tokens.length[before]
            work.slot_before[before] += 1
        if behind == token:
            if itself >= 0:
                pairs.positions[itself] = at
                itself += 1
        elif behind != SEPARATOR and work.slot_behind[behind] >= 0:
            pairs.positions[work.slot_behind[behind]] = at
            work.slot_behind[behind] += 1


@kernel(inline=True)
def merge_pair(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    work: Work,
    rules: Rules,
    counters: Int64,
    pair: int,
    seen: Int64,
) -> None:
    """Join a pair everywhere, and bring the pairs around it up to date."""
    token = make_token(words, tokens, counters, pairs, pair)
    known = counters[NUM_PAIRS]
    places = join_places(words, tokens, pairs, work, pair, token, seen)
    itself = make_neighbours(words, tokens, pairs, work, rules, counters, pair, token, seen)
    pairs.frequency[pair] = 0
    list_places(tokens, pairs, work, pair, token, places, itself)
    pairs.number[pair] = 0
    for k in range(seen[0]):
        work.slot_before[work.seen_before[k]] = 0
    for k in range(seen[1]):
        work.slot_behind[work.seen_behind[k]] = 0
    for made in range(known, counters[NUM_PAIRS]):
        rise(words, tokens, pairs, rules, counters[NUM_QUEUED], made, pairs.frequency[made])
        counters[NUM_QUEUED] += 1


@kernel
def merge_pairs(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    work: Work,
    rules: Rules,
    counters: Int64,
    seen: Int64,
    until: int,
) -> int:
    """Merge pairs, the most frequent first, until there are `until` merges.

    Args:
        words: the text as symbols; changed.
        tokens: the symbols; new ones are added.
        pairs: changed.
        work: zeros where `Work` says so.
        rules: what may be merged.
        counters: shape (COUNTERS,); changed.
        seen: shape (4,); scratch.
        until: number of merges.

    Returns:
        MADE_ALL, NO_PAIRS if none is left that may be merged, or NO_ROOM if `pairs` must grow first: by
        `counters[PAIRS_NEEDED]` pairs and `counters[POSITIONS_NEEDED]` positions.
    """
    while counters[NUM_MERGES] < until:
        pair = next_pair(words, tokens, pairs, rules, counters)
        if pair < 0:
            return NO_PAIRS
        number = pairs.number[pair]
        counters[PAIRS_NEEDED] = min(2 * number, 2 * counters[NUM_TOKENS]) + 1
        counters[POSITIONS_NEEDED] = 2 * number
        if (
            counters[NUM_PAIRS] + counters[PAIRS_NEEDED] > pairs.frequency.shape[0]
            or counters[NUM_POSITIONS] + counters[POSITIONS_NEEDED] > pairs.positions.shape[0]
        ):
            return NO_ROOM
        # it stays at the head of the queue with its old count, and goes when the next one is looked for
        merge_pair(words, tokens, pairs, work, rules, counters, pair, seen)
        counters[NUM_MERGES] += 1
    return MADE_ALL
