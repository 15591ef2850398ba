"""List the pairs that occur often enough, with their places, in three passes over the text.

First all pairs are counted in buckets, by a hash of their symbols. A bucket's count is the sum of its pairs'
counts, so a bucket below the threshold holds no pair that reaches it. Then the places of the other buckets
are listed. Last, each list is divided among its pairs, mostly one frequent pair and a few rare ones.
While all symbols are bytes, each pair has a bucket of its own.
"""

import math

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, Int64Table, UInt32
from tokmill.tokenizer.jit.intrinsics import prefetch
from tokmill.tokenizer.merging.kernels.pair_queue import find_slot, mix_pair, step_of
from tokmill.tokenizer.merging.kernels.state import (
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

AHEAD = 12
"""Number of places by which the text is prefetched: about the latency of memory."""


@kernel(inline=True)
def bucket_of(left: int, right: int, mask: np.uint64, of_bytes: bool) -> np.uint64:
    """Return the bucket of a pair; any two cells have an existing one."""
    return (np.uint64(left << 8 | right) if of_bytes else mix_pair(left, right)) & mask


@kernel
def count_buckets(words: Words, buckets: Int64Table, of_bytes: bool, first: int, end: int) -> None:
    """Count, by bucket, the pairs whose second symbol is in a range of cells."""
    mask, step = np.uint64(buckets.shape[0] - 1), step_of(words, first, np.int64(0))
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
    """Count buckets by how often their pairs occur."""
    for bucket in range(buckets.shape[0]):
        if buckets[bucket, 0] > 0:
            magnitude = math.frexp(float(buckets[bucket, 0]))[1]
            magnitudes[magnitude, 0] += 1
            magnitudes[magnitude, 1] += buckets[bucket, 1]


@kernel
def lay_out_lists(buckets: Int64Table, lists: Int64Table, threshold: int, aside: int) -> None:
    """Assign a list to the places of each bucket that reaches a threshold."""
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
    """List the places of the pairs whose second symbol is in a range of cells, each in its bucket's list."""
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
    """Divide a list: the places of the pair at the first place come first, the others follow."""
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

    Returns MADE_ALL if that is done, or NO_ROOM if there is too little for a pair and those that merges may
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
            left, right = np.int64(words.cells[at]), np.int64(words.cells[at + 1])
            length = np.int64(tokens.length[left]) + np.int64(tokens.length[right])
            if rest - parted[1] >= counters[THRESHOLD] and length <= rules.max_length:
                add_pair(pairs, counters, left, right, rest - parted[1], first, parted[0] - first)
            first, rest = parted[0], parted[1]
        if outcome == MADE_ALL:
            counters[NUM_POSITIONS], rest = end, np.int64(0)
            k += 1
    progress[0], progress[1], progress[2] = k, first, rest
    return outcome
