"""Merge the characters of a pre-token: the piece of the greatest score first, at its leftmost place.

The symbols are a linked list over the bytes at which they begin, and a heap has the pairs that have a merge;
see `kernels.merges`. A merge's rank names its piece; pieces of equal scores have the same *group*, of which
the leftmost is merged first, whichever piece it makes.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64, UInt32
from tokmill.tokenizer.kernels.characters import UNKNOWN_CHARACTER, read_character
from tokmill.tokenizer.kernels.merges import Scratch, join, rank_at, sift_down, sift_up
from tokmill.tokenizer.kernels.pairs import NO_MERGE, PairTables
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
