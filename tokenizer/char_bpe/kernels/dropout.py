"""Encode pre-tokens with BPE-dropout; `kernels.dropout` has the definition, with scores for ranks."""

import numpy as np

from tokmill.tokenizer.char_bpe.kernels.merging import Pieces, queue_pair, start_characters, write_merged
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.draws import STEP, first_state, unit_of
from tokmill.tokenizer.kernels.merges import (
    POSITION_BITS,
    POSITION_MASK,
    Scratch,
    join,
    sift_down,
    sift_up,
)
from tokmill.tokenizer.kernels.pairs import NO_MERGE

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel(inline=True)
def pop_pair(pieces: Pieces, scratch: Scratch, size: int, last: np.uint64) -> tuple[np.uint64, int]:
    """Take the first pair that is still there off a heap; return its entry, or _NONE, and its new size.

    A place may have two equal entries, if its pair became another one of the same score: what equals the
    entry `last` is dropped, so that each place is drawn once per step.
    """
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        rank = scratch.ranks[np.int64(top & POSITION_MASK)]
        if top != last and rank != NO_MERGE and np.uint64(pieces.groups[rank]) == top >> POSITION_BITS:
            return top, size
    return _NONE, size


@kernel(inline=True)
def merge_characters_with_dropout(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    state: np.uint64,
) -> None:
    """Leave the symbols of a pre-token, merged, in the scratch; `left_out` is scratch, one per byte."""
    length, size, at = end - start, np.int64(0), np.int64(0)
    start_characters(data, start, end, pieces, scratch)
    while at < length:
        size = queue_pair(at, length, size, pieces, scratch)
        at = np.int64(scratch.following[at])
    while True:
        number = 0
        chosen, size = pop_pair(pieces, scratch, size, _NONE)
        while chosen != _NONE:
            state += STEP
            if unit_of(state) >= dropout:
                break
            left_out[number] = chosen
            number += 1
            chosen, size = pop_pair(pieces, scratch, size, chosen)
        if chosen == _NONE:
            break
        for k in range(number):
            sift_up(scratch.heap, size, left_out[k])
            size += 1
        at = np.int64(chosen & POSITION_MASK)
        rank = np.int64(scratch.ranks[at])
        scratch.ranks[scratch.following[at]] = NO_MERGE
        before, _ = join(at, rank, length, pieces.pairs, scratch)
        if before >= 0:
            size = queue_pair(before, length, size, pieces, scratch)
        size = queue_pair(at, length, size, pieces, scratch)


@kernel
def sample_characters(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
) -> int:
    """Encode every pre-token with dropout.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_documents + 1,), the pre-tokens of each document.
        pieces: the vocabulary.
        scratch: for the longest pre-token.
        left_out: scratch, as long.
        dropout: the probability with which a pair is left out, from 0 to 1.
        seed: shape (1,), any number.
        ids: with room for an id per byte; written.
        id_ends: shape (num_documents + 1,), the first one 0; written: where each document's ids end.
        lost_bytes: shape (num_documents,); written: bytes of unknown characters.

    Returns:
        The number of ids.
    """
    number = np.int64(0)
    for document in range(offsets.shape[0] - 1):
        lost_bytes[document] = 0
        for k in range(offsets[document], offsets[document + 1]):
            start, end = starts[k], ends[k]
            state = first_state(seed[0], data, start, end, k - offsets[document])
            merge_characters_with_dropout(data, start, end, pieces, scratch, left_out, dropout, state)
            count, lost = write_merged(data, start, end - start, pieces, scratch, ids, number)
            number += count
            lost_bytes[document] += lost
        id_ends[document + 1] = number
    return number
