"""Encode pre-tokens by merging characters: the piece of the greatest score first, at its leftmost place.

The symbols are a linked list over the bytes at which they begin, and a heap has the pairs that have a merge.
A rank names a piece; pieces of equal scores have the same *group*, of which the leftmost is merged first. A
cache has known pre-tokens, but not those with unknown characters, since the bytes that they lose are counted.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64, Int64In, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    SEGMENT,
    EncodingCache,
    Fetched,
    fetch_ahead,
    recall,
    remember,
)
from tokmill.tokenizer.kernels.characters import UNKNOWN_CHARACTER, read_character
from tokmill.tokenizer.kernels.draws import STEP, first_state, unit_of
from tokmill.tokenizer.kernels.merges import (
    NO_MERGE,
    POSITION_BITS,
    POSITION_MASK,
    PairTables,
    Scratch,
    join,
    rank_at,
    sift_down,
    sift_up,
)
from tokmill.tokenizer.kernels.tries import Trie, longest_at

_POSITION_BITS, _POSITION_MASK = np.uint64(32), np.uint64(0xFFFFFFFF)


class Pieces(NamedTuple):
    """A vocabulary; only read.

    Attributes:
        points: shape (0x110000,), the symbol of each character by code point, -1 if there is none. Symbols
            from `num_ids` on are characters that only occur in longer pieces.
        frozen: the pieces that users defined, which are found first and never merged.
        pairs: the merges, by rank.
        groups: shape (num_ranks,), ascending.
        byte_ids: shape (256,), the ids of the bytes that stand in for unknown characters; else empty.
        unknown: the unknown token's id.
        num_ids: the number of ids.
        fuse: whether neighbouring unknown characters become one unknown token.
    """

    points: Int32
    frozen: Trie
    pairs: PairTables
    groups: Int32
    byte_ids: Int32
    unknown: int
    num_ids: int
    fuse: bool


@kernel(inline=True)
def start_characters(data: BytesIn, start: int, end: int, pieces: Pieces, scratch: Scratch) -> None:
    """Set up one symbol per character or frozen piece."""
    at, before = start, -1
    while at < end:
        after, symbol = longest_at(data, at, end, pieces.frozen)
        if symbol < 0:
            point, after = read_character(data, at, end)
            symbol = np.int64(pieces.points[point]) if point >= 0 else UNKNOWN_CHARACTER
        place = at - start
        scratch.ids[place], scratch.ranks[place] = symbol, NO_MERGE
        scratch.preceding[place], scratch.following[place] = before, after - start
        before, at = place, after


@kernel(inline=True)
def queue_pair(at: int, length: int, size: int, pieces: Pieces, scratch: Scratch) -> int:
    """Put the pair at a place into the heap, if it has a merge; return the heap's size."""
    scratch.ranks[at] = NO_MERGE
    if scratch.following[at] >= length or scratch.ids[at] < 0 or scratch.ids[scratch.following[at]] < 0:
        return size
    rank = rank_at(at, pieces.pairs, scratch)
    scratch.ranks[at] = rank
    if rank == NO_MERGE:
        return size
    item = np.uint64(pieces.groups[rank]) << _POSITION_BITS | np.uint64(at)
    sift_up(scratch.heap, size, item)
    return size + 1


@kernel(inline=True)
def merge_characters(data: BytesIn, start: int, end: int, pieces: Pieces, scratch: Scratch) -> None:
    """Leave the symbols of a pre-token, merged, in the scratch."""
    length, size, at = end - start, np.int64(0), np.int64(0)
    start_characters(data, start, end, pieces, scratch)
    while at < length:
        size = queue_pair(at, length, size, pieces, scratch)
        at = np.int64(scratch.following[at])
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        at = np.int64(top & _POSITION_MASK)
        rank = scratch.ranks[at]
        if rank == NO_MERGE or np.uint64(pieces.groups[rank]) != top >> _POSITION_BITS:
            continue
        scratch.ranks[scratch.following[at]] = NO_MERGE
        before, _ = join(at, np.int64(rank), length, pieces.pairs, scratch)
        if before >= 0:
            size = queue_pair(before, length, size, pieces, scratch)
        size = queue_pair(at, length, size, pieces, scratch)


@kernel(inline=True)
def write_merged(
    data: BytesIn, start: int, length: int, pieces: Pieces, scratch: Scratch, out: UInt32, first: int
) -> tuple[int, int]:
    """Write the ids of merged symbols from `first` on; return their number, and the number of unknown bytes.

    An unknown character becomes its bytes, if there are ids for them; otherwise neighbouring unknown
    characters become one unknown token, or each its own.
    """
    count, lost, at, was_unknown = 0, 0, np.int64(0), False
    while at < length:
        symbol, after = np.int64(scratch.ids[at]), np.int64(scratch.following[at])
        unknown = symbol < 0 or symbol >= pieces.num_ids
        if unknown and pieces.byte_ids.shape[0] > 0:
            for i in range(at, after):
                out[first + count] = np.uint32(pieces.byte_ids[data[start + i]])
                count += 1
        elif not (unknown and was_unknown and pieces.fuse):
            out[first + count] = np.uint32(pieces.unknown if unknown else symbol)
            count += 1
        if unknown and pieces.byte_ids.shape[0] == 0:
            lost += after - at
        at, was_unknown = after, unknown
    return count, lost


@kernel(inline=True)
def write_merged_ends(
    start: int, length: int, pieces: Pieces, scratch: Scratch, out: Int64, first: int
) -> int:
    """Write where each id of `write_merged` ends; return their number."""
    count, at, was_unknown = 0, np.int64(0), False
    while at < length:
        symbol, after = np.int64(scratch.ids[at]), np.int64(scratch.following[at])
        unknown = symbol < 0 or symbol >= pieces.num_ids
        if unknown and pieces.byte_ids.shape[0] > 0:
            for i in range(at, after):
                out[first + count] = start + i + 1
                count += 1
        else:
            count += 0 if unknown and was_unknown and pieces.fuse else 1
            out[first + count - 1] = start + after
        at, was_unknown = after, unknown
    return count


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        scratch: see `kernels.merges`.
        fetched: where a block of pre-tokens is in the cache.
    """

    cache: EncodingCache
    scratch: Scratch
    fetched: Fetched


@kernel(inline=True)
def encode_pretoken(
    data: BytesIn, start: int, end: int, row: int, pieces: Pieces, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Write the ids of a pre-token; return their number, and the number of unknown bytes."""
    count = recall(data, start, end - start, row, memory.cache, memory.fetched, out, at)
    if count > 0:
        return count, 0
    merge_characters(data, start, end, pieces, memory.scratch)
    count, lost = write_merged(data, start, end - start, pieces, memory.scratch, out, at)
    if lost == 0:
        remember(data, start, end - start, row, memory.cache, memory.fetched, out, at, count)
    return count, lost


@kernel
def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    pieces: Pieces,
    memory: Memory,
    out: UInt32,
    out_offsets: Int64,
    unknown_bytes: Int64,
    progress: Int64,
    until: int,
) -> int:
    """Encode the pre-tokens of segments as `encode_pretokens` of unigram models does."""
    segment, k, position = progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS]
    block, fetched, lacking = k, k, DONE
    while segment < kinds.shape[0] and lacking == DONE:
        last = offsets[segment + 1]
        if kinds[segment] >= 0:
            out[position] = np.uint32(kinds[segment])
            position += 1
            if kinds[segment] == pieces.unknown and k < last:
                unknown_bytes[segment] = ends[last - 1] - starts[k]
            k = last
        while k < last:
            if k >= fetched:
                block, fetched = k, min(k + BLOCK, starts.shape[0])
                longest = fetch_ahead(data, starts, ends, block, fetched, memory.cache, memory.fetched)
                if longest > memory.scratch.ids.shape[0]:
                    lacking = longest
                    break
                if starts[k] >= until:
                    lacking = PAUSED
                    break
            count, lost = encode_pretoken(data, starts[k], ends[k], k - block, pieces, memory, out, position)
            unknown_bytes[segment] += lost
            position += count
            k += 1
        if lacking == DONE:
            segment += 1
            out_offsets[segment] = position
    progress[SEGMENT], progress[PRETOKEN], progress[NUM_IDS] = segment, k, position
    return lacking


@kernel
def locate_pieces(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    out: Int64,
) -> int:
    """Write where each token of some segments ends; return their number."""
    number = 0
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            out[number] = bounds[segment + 1]
            number += 1
            continue
        for k in range(offsets[segment], offsets[segment + 1]):
            merge_characters(data, starts[k], ends[k], pieces, scratch)
            number += write_merged_ends(starts[k], ends[k] - starts[k], pieces, scratch, out, number)
    return number


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
    """Encode every pre-token with dropout; return the number of ids.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.
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
