"""BPE-dropout: encode by merges, any of which may be left out at any step.

At each step every place that a merge could join is left out with a probability, and of the others the one of
the lowest rank, the leftmost first, is joined; where none is left the pre-token is done. Places are tried in
that order until one is not left out, since those after it do not matter.

Source: Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
"""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.model import WholeTokens, whole_token
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.draws import STEP, first_state, unit_of
from tokmill.tokenizer.kernels.merges import (
    POSITION_BITS,
    POSITION_MASK,
    Scratch,
    join_and_push,
    push_merges,
    sift_down,
    sift_up,
    start_symbols,
    write_symbols,
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


@kernel
def sample_merges(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    tables: PairTables,
    whole: WholeTokens,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode every pre-token with dropout.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_documents + 1,), the pre-tokens of each document.
        tables: the merges.
        whole: tokens that are taken whole where nothing is left out, that is with the dropout 0.
        scratch: for the longest pre-token.
        left_out: shape (the longest pre-token,), scratch.
        dropout: the probability with which a merge is left out, from 0 to 1.
        seed: shape (1,), any number.
        out: room for an id per byte; receives the ids.
        out_offsets: shape (num_documents + 1,), the first one 0; receives where each document's ids end.

    Returns:
        The number of ids.
    """
    number = np.int64(0)
    for document in range(offsets.shape[0] - 1):
        for pretoken in range(offsets[document], offsets[document + 1]):
            start, end = starts[pretoken], ends[pretoken]
            if dropout == 0.0 and whole.size > 0:
                token = whole_token(data, start, end, whole)
                if token >= 0:
                    out[number] = token
                    number += 1
                    continue
            start_symbols(data, start, end - start, tables, scratch)
            state = first_state(seed[0], data, start, end, pretoken - offsets[document])
            merge_with_dropout(end - start, tables, scratch, left_out, dropout, state)
            number += write_symbols(end - start, scratch, out, number)
        out_offsets[document + 1] = number
    return number
