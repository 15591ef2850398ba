"""Dropping what training does not need any more: places that are lost, and pairs that can not be merged."""

import numpy as np

from tokenizer.kernels.arrays import Int64
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pair_queue import find_slot
from tokenizer.kernels.training_state import NUM_PAIRS, NUM_POSITIONS, Pairs, Rules, Tokens, Words


@kernel
def drop_lost_places(words: Words, tokens: Tokens, pairs: Pairs, rules: Rules, counters: Int64) -> None:
    """Move the lists together, without places that are lost and without those of pairs that stay unmerged."""
    used = np.int64(0)
    for pair in range(counters[NUM_PAIRS]):
        first, number = pairs.first[pair], pairs.number[pair]
        left, right = pairs.left[pair], pairs.right[pair]
        pairs.first[pair] = used
        if pairs.frequency[pair] >= rules.min_count:
            for k in range(first, first + number):
                at = np.int64(pairs.positions[k])
                middle = at + tokens.length[left]
                if (
                    words.cells[at] == left
                    and words.cells[middle - 1] == left
                    and words.cells[middle] == right
                ):
                    pairs.positions[used] = at
                    used += 1
        pairs.number[pair] = used - pairs.first[pair]
    counters[NUM_POSITIONS] = used


@kernel
def drop_dead_pairs(pairs: Pairs, rules: Rules, counters: Int64) -> None:
    """Number anew the pairs that can still be merged, and make their slots again; the queue is not filled."""
    kept = 0
    for pair in range(counters[NUM_PAIRS]):
        if pairs.frequency[pair] >= rules.min_count:
            pairs.left[kept], pairs.right[kept] = pairs.left[pair], pairs.right[pair]
            pairs.frequency[kept] = pairs.frequency[pair]
            pairs.first[kept], pairs.number[kept] = pairs.first[pair], pairs.number[pair]
            kept += 1
    counters[NUM_PAIRS] = kept
    for slot in range(pairs.slots.shape[0]):
        pairs.slots[slot] = -1
    for pair in range(kept):
        pairs.slots[find_slot(pairs, pairs.left[pair], pairs.right[pair])] = pair
