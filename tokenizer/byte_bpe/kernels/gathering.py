"""Gather the pairs that occur often enough, with their places, in three passes over the text.

First all pairs are counted in buckets, by a hash of their symbols. A bucket's count is the sum of its pairs'
counts, so a bucket below the threshold holds no pair that reaches it. Then the places of the other buckets
are listed. Last, each list is divided among its pairs, mostly one frequent pair and a few rare ones.
While all symbols are bytes, each pair has a bucket of its own.
"""

import math

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.pair_queue import find_slot, mix_pair, step_of
from tokmill.tokenizer.byte_bpe.kernels.training_state import (
    MADE_ALL,
    NO_ROOM,
    NUM_PAIRS,
    NUM_POSITIONS,
    NUM_TOKENS,
    SEPARATOR,
    THRESHOLD,
    Pairs,
    Rules,
    Tokens,
    Words,
)
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, Int64Table, UInt32
from tokmill.tokenizer.jit.intrinsics import prefetch

AHEAD = 12
"""Number of places by which the text is prefetched: about the latency of memory."""


@kernel(inline=True)
def bucket_of(left: int, right: int, mask: np.uint64, of_bytes: bool) -> np.uint64:
    """Return the bucket of a pair; any two cells have an existing one."""
    return (np.uint64(left << 8 | right) if of_bytes else mix_pair(left, right)) & mask


@kernel
def count_buckets(words: Words, buckets: Int64Table, of_bytes: bool, first: int, end: int) -> None:
    """Count, by bucket, the pairs whose second symbol is in a range of cells.

    Args:
        words: moved together.
        buckets: shape (a power of two, 2), zeros at first; receives the count of the bucket's pairs, and
            the number of their places.
        of_bytes: whether all symbols are bytes; there are 65,536 buckets then.
        first: the first of these cells, at least 1.
        end: the cell after the last.
    """
    mask, step = np.uint64(buckets.shape[0] - 1), step_of(words, first, 0)
    while step < words.step_count.shape[0] and words.step_at[step] < end:
        count, begin = words.step_count[step], max(first, words.step_at[step] + 1)
        left = np.int64(words.cells[begin - 1])
        for position in range(begin, min(end, words.step_at[step + 1])):
            right = np.int64(words.cells[position])
            if left != SEPARATOR and right != SEPARATOR:
                bucket = bucket_of(left, right, mask, of_bytes)
                buckets[bucket, 0] += count
                buckets[bucket, 1] += 1
            left = right
        step += 1


@kernel
def count_magnitudes(buckets: Int64Table, magnitudes: Int64Table) -> None:
    """Count buckets by how often their pairs occur.

    Args:
        buckets: from `count_buckets`.
        magnitudes: shape (64, 2), zeros; row m receives, for counts from `2**(m - 1)` to below `2**m`, the
            number of buckets and of their places.
    """
    for bucket in range(buckets.shape[0]):
        if buckets[bucket, 0] > 0:
            magnitude = math.frexp(float(buckets[bucket, 0]))[1]
            magnitudes[magnitude, 0] += 1
            magnitudes[magnitude, 1] += buckets[bucket, 1]


@kernel
def lay_out_lists(buckets: Int64Table, lists: Int64Table, threshold: int, aside: int) -> None:
    """Assign a list to the places of each bucket that reaches a threshold.

    Args:
        buckets: from `count_buckets`; receives the step by which a place moves the end of its bucket's list,
            and that end.
        lists: shape (number of buckets that reach it, 2); receives a bucket's count, and where its list ends.
        threshold: at least 1.
        aside: index at which places without a list may be written.
    """
    number, used = 0, np.int64(0)
    for bucket in range(buckets.shape[0]):
        if buckets[bucket, 0] < threshold:
            buckets[bucket, 0], buckets[bucket, 1] = 0, aside
            continue
        first, used = used, used + buckets[bucket, 1]
        lists[number, 0], lists[number, 1] = buckets[bucket, 0], used
        buckets[bucket, 0], buckets[bucket, 1] = 1, first
        number += 1


@kernel
def list_places(
    words: Words, buckets: Int64Table, positions: UInt32, of_bytes: bool, first: int, end: int
) -> None:
    """List the places of the pairs whose second symbol is in a range of cells, each in its bucket's list.

    Args:
        words: as they were counted.
        buckets: from `lay_out_lists`; changed.
        positions: room for the lists, and after them one element for places without a list.
        of_bytes: as in `count_buckets`.
        first: the first of these cells, at least 1; lists are in order if calls are.
        end: the cell after the last.
    """
    mask, aside = np.uint64(buckets.shape[0] - 1), np.int64(positions.shape[0] - 1)
    left = np.int64(words.cells[first - 1])
    for position in range(first, end):
        # to avoid a branch, places without a list are written, too, where they do no harm
        right = np.int64(words.cells[position])
        bucket = bucket_of(left, right, mask, of_bytes)
        is_pair, at = (left | right) >= 0, buckets[bucket, 1]
        positions[np.uint64(at if is_pair else aside)] = position - 1
        buckets[bucket, 1] = at + (buckets[bucket, 0] if is_pair else 0)
        left = right


@kernel(inline=True)
def part_list(words: Words, positions: UInt32, first: int, end: int, others: UInt32, parted: Int64) -> None:
    """Divide a list: the places of the pair at the first place come first, the others follow.

    Args:
        words: moved together.
        positions: all lists; changed.
        first: where the list begins.
        end: where it ends.
        others: scratch, as long as the list.
        parted: shape (2,); receives where the others begin, and how often their pairs occur.
    """
    cells = words.cells
    left, right = cells[np.int64(positions[first])], cells[np.int64(positions[first]) + 1]
    kept, number, count, step = first, 0, np.int64(0), np.int64(0)
    for k in range(first, end):
        prefetch(cells, np.int64(positions[min(k + AHEAD, end - 1)]))
        at = np.int64(positions[k])
        if cells[at] == left and cells[at + 1] == right:
            positions[kept] = at
            kept += 1
        else:
            others[number] = at
            number += 1
            step = step_of(words, at, step)
            count += words.step_count[step]
    for k in range(number):
        positions[kept + k] = others[k]
    parted[0], parted[1] = kept, count


@kernel(inline=True)
def add_pair(
    pairs: Pairs, counters: Int64, left: int, right: int, frequency: int, first: int, number: int
) -> None:
    """Add a pair with `number` positions, listed from `first`; there must be room."""
    pair = counters[NUM_PAIRS]
    counters[NUM_PAIRS] += 1
    pairs.left[pair], pairs.right[pair], pairs.frequency[pair] = left, right, frequency
    pairs.first[pair], pairs.number[pair] = first, number
    pairs.slots[find_slot(pairs, left, right)] = pair


@kernel
def make_pairs(
    words: Words,
    tokens: Tokens,
    pairs: Pairs,
    rules: Rules,
    counters: Int64,
    lists: Int64Table,
    others: UInt32,
    parted: Int64,
    of_bytes: bool,
    progress: Int64,
    until: int,
) -> int:
    """Make the pairs that reach the threshold from the lists of their buckets; the queue is not filled.

    Args:
        words: as they were listed.
        tokens: the symbols.
        pairs: empty at first, with `positions` from `list_places`; filled.
        rules: what may be merged.
        counters: NUM_PAIRS and NUM_POSITIONS are 0 at first, and changed.
        lists: from `list_places`.
        others: scratch, as long as the longest list.
        parted: scratch, shape (2,).
        of_bytes: as in `count_buckets`.
        progress: shape (3,), zeros at first: the list that comes next, where what is left of it begins, and
            how often the pairs there occur; both 0 if it was not begun. A list is regrouped as its pairs are
            made, so that nothing may be done twice.
        until: number of lists to process.

    Returns:
        MADE_ALL if that is done, or NO_ROOM if there is too little for a pair and those that merges may
        create; a further call, with more room, goes on from there.
    """
    room, k = pairs.left.shape[0] - 2 * counters[NUM_TOKENS] - 1, progress[0]
    first, rest, outcome = progress[1], progress[2], np.int64(MADE_ALL)
    while k < until and outcome == MADE_ALL:
        end = lists[k, 1]
        if rest == 0:
            first, rest = counters[NUM_POSITIONS], lists[k, 0]
        while rest >= counters[THRESHOLD]:
            if counters[NUM_PAIRS] >= room:
                outcome = np.int64(NO_ROOM)
                break
            parted[0], parted[1] = end, 0
            if not of_bytes:
                part_list(words, pairs.positions, first, end, others, parted)
            at = np.int64(pairs.positions[first])
            left, right = words.cells[at], words.cells[at + 1]
            length = np.int64(tokens.length[left]) + np.int64(tokens.length[right])
            if rest - parted[1] >= counters[THRESHOLD] and length <= rules.max_length:
                add_pair(pairs, counters, left, right, rest - parted[1], first, parted[0] - first)
            first, rest = parted[0], parted[1]
        if outcome == MADE_ALL:
            counters[NUM_POSITIONS], rest = end, np.int64(0)
            k += 1
    progress[0], progress[1], progress[2] = k, first, rest
    return outcome
