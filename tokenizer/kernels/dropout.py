"""BPE-dropout: encode by merges, any of which may be left out at any step.

At each step every place that a merge could join is left out with a probability, and of the others the one of
the lowest rank, the leftmost first, is joined; where none is left the pre-token is done. Places are tried in
that order until one is not left out, since those after it do not matter.

Source: Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import UInt64
from tokmill.tokenizer.kernels.draws import STEP, unit_of
from tokmill.tokenizer.kernels.merges import (
    POSITION_BITS,
    POSITION_MASK,
    Scratch,
    join_and_push,
    push_merges,
    sift_down,
    sift_up,
)
from tokmill.tokenizer.kernels.pairs import PairTables

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel(inline=True)
def pop_merge(scratch: Scratch, size: int) -> tuple[np.uint64, int]:
    """Take the first merge that is still possible off a heap; return it, or _NONE, and the new size."""
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        if scratch.ranks[np.int64(top & POSITION_MASK)] == np.uint32(top >> POSITION_BITS):
            return top, size
    return _NONE, size


@kernel(inline=True)
def merge_with_dropout(
    length: int, tables: PairTables, scratch: Scratch, left_out: UInt64, dropout: float, state: np.uint64
) -> None:
    """Merge symbols that were set up, as the module describes; `left_out` is scratch, one per symbol."""
    size = push_merges(length, scratch)
    while True:
        number = 0
        chosen, size = pop_merge(scratch, size)
        while chosen != _NONE:
            state += STEP
            if unit_of(state) >= dropout:
                break
            left_out[number] = chosen
            number += 1
            chosen, size = pop_merge(scratch, size)
        if chosen == _NONE:
            break
        for k in range(number):
            sift_up(scratch.heap, size, left_out[k])
            size += 1
        size = join_and_push(chosen, length, size, tables, scratch)
