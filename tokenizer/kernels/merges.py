"""Encode by merges, as in the definition: the merge of the lowest group first, at its leftmost place.

The symbols of a pre-token are a linked list over the bytes at which they begin, and a heap has groups and
positions of their pairs; an outdated entry is dropped when it comes up. A mark may stand after the last byte.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int32In, Int64, Int64In, Int64Table, UInt32, UInt64
from tokmill.tokenizer.kernels.encoding import put_span
from tokmill.tokenizer.kernels.pair_tables import NO_MERGE, PairTables, find_rank, insert
from tokmill.tokenizer.kernels.words import STEP, unit_of

LEAST_ROOM = 32
"""At least the working memory of `short_merges`."""

POSITION_BITS = np.uint64(32)
POSITION_MASK = np.uint64(0xFFFFFFFF)
"""The position in an entry of the heap, whose other bits are the group."""

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)
"""No entry of the heap."""


class Scratch(NamedTuple):
    """Working memory for merging a pre-token of at most the arrays' length; the heap has twice that length.

    Attributes:
        ids: the symbol that begins at a position.
        ranks: the rank of its merge with the next symbol.
        following: where the next symbol begins.
        preceding: where the one before begins, or -1.
        heap: pairs that have a merge, as `group << 32 | position`.
        left_out: entries that a step of dropout leaves out.
    """

    ids: Int32
    ranks: UInt32
    following: Int32
    preceding: Int32
    heap: UInt64
    left_out: UInt64


def make_scratch(length: int) -> Scratch:
    """Make working memory for pre-tokens of up to `length` bytes, and for LEAST_ROOM at least."""
    length = max(length, LEAST_ROOM)
    ids, following, preceding = np.empty((3, length), np.int32)
    heap, left_out = np.empty(2 * length, np.uint64), np.empty(length, np.uint64)
    return Scratch(ids, np.empty(length, np.uint32), following, preceding, heap, left_out)


@kernel(inline=True)
def put_symbol(symbol: int, at: int, after: int, before: int, scratch: Scratch) -> int:
    """Put a symbol at a place; `before` and `after` are those of its neighbours. Returns the place."""
    scratch.ids[at], scratch.preceding[at], scratch.following[at] = symbol, before, after
    return at


@kernel(inline=True)
def queue_pair(at: int, length: int, size: int, tables: PairTables, scratch: Scratch) -> int:
    """Put the pair of a symbol and the next one into the heap, if it has a merge; return the heap's size."""
    after = np.int64(scratch.following[at])
    scratch.ranks[at] = NO_MERGE
    if after >= length:
        return size
    rank = find_rank(tables, scratch.ids[at], scratch.ids[after])
    scratch.ranks[at] = rank
    if rank == NO_MERGE:
        return size
    sift_up(scratch.heap, size, np.uint64(tables.groups[rank]) << POSITION_BITS | np.uint64(at))
    return size + 1


@kernel(inline=True)
def queue_pairs(length: int, tables: PairTables, scratch: Scratch) -> int:
    """Make the heap of all pairs of symbols that were put; return its size."""
    size, at = np.int64(0), np.int64(0)
    while at < length:
        size = queue_pair(at, length, size, tables, scratch)
        at = np.int64(scratch.following[at])
    return size


@kernel(inline=True)
def pop_pair(size: int, last: np.uint64, tables: PairTables, scratch: Scratch) -> tuple[np.uint64, int]:
    """Take the first pair that is still there off the heap; return its entry, or _NONE, and the new size.

    A place may have two equal entries, if its pair became another one of the same group: what equals the
    entry `last` is dropped, so that dropout draws each place once per step.
    """
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        rank = scratch.ranks[np.int64(top & POSITION_MASK)]
        if top != last and rank != NO_MERGE and np.uint64(tables.groups[rank]) == top >> POSITION_BITS:
            return top, size
    return _NONE, size


@kernel(inline=True)
def join(entry: np.uint64, length: int, size: int, tables: PairTables, scratch: Scratch) -> int:
    """Join the symbols of an entry that was popped, and queue their new pairs; return the heap's size."""
    at = np.int64(entry & POSITION_MASK)
    gone = np.int64(scratch.following[at])
    after = np.int64(scratch.following[gone])
    scratch.ids[at], scratch.following[at] = tables.results[scratch.ranks[at]], after
    scratch.ranks[gone] = NO_MERGE
    if after < length:
        scratch.preceding[after] = at
    before = np.int64(scratch.preceding[at])
    if before >= 0:
        size = queue_pair(before, length, size, tables, scratch)
    return queue_pair(at, length, size, tables, scratch)


@kernel(inline=True)
def sift_down(heap: UInt64, size: int, hole: int, item: np.uint64) -> None:
    """Put an item where it belongs at or below a hole."""
    child = 2 * hole + 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if item <= heap[child]:
            break
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    heap[hole] = item


@kernel(inline=True)
def sift_up(heap: UInt64, hole: int, item: np.uint64) -> None:
    """Put an item where it belongs at or above a hole."""
    while hole > 0 and item < heap[(hole - 1) >> 1]:
        heap[hole] = heap[(hole - 1) >> 1]
        hole = (hole - 1) >> 1
    heap[hole] = item


@kernel(inline=True)
def merge_symbols(length: int, tables: PairTables, scratch: Scratch) -> int:
    """Merge symbols that were put; return the rank of the last merge, -1 if there was none."""
    last, size = np.int64(-1), queue_pairs(length, tables, scratch)
    entry, size = pop_pair(size, _NONE, tables, scratch)
    while entry != _NONE:
        last = np.int64(scratch.ranks[np.int64(entry & POSITION_MASK)])
        size = join(entry, length, size, tables, scratch)
        entry, size = pop_pair(size, _NONE, tables, scratch)
    return last


@kernel(inline=True)
def merge_with_dropout(
    length: int, tables: PairTables, scratch: Scratch, dropout: float, state: np.uint64
) -> None:
    """Merge symbols that were put, with BPE-dropout (Provilkov, Emelianenko and Voita 2020).

    At each step every place that a merge could join is left out with a probability, and of the others the
    one of the lowest group, the leftmost first, is joined.
    """
    size = queue_pairs(length, tables, scratch)
    while True:
        number = 0
        chosen, size = pop_pair(size, _NONE, tables, scratch)
        while chosen != _NONE:
            state += STEP
            if unit_of(state) >= dropout:
                break
            scratch.left_out[number] = chosen
            number += 1
            chosen, size = pop_pair(size, chosen, tables, scratch)
        if chosen == _NONE:
            break
        for k in range(number):
            sift_up(scratch.heap, size, scratch.left_out[k])
            size += 1
        size = join(chosen, length, size, tables, scratch)


class Unknown(NamedTuple):
    """What becomes of symbols that have no id.

    Attributes:
        first: the symbols from this one on have none.
        token: the id of the unknown token, or -1.
        byte_ids: shape (256,), the ids of the bytes that stand in for an unknown symbol; else empty.
        fuse: whether neighbouring unknown symbols become one token.
    """

    first: int
    token: int
    byte_ids: Int32
    fuse: bool


@kernel(inline=True)
def write_known(
    data: BytesIn,
    start: int,
    end: int,
    places: int,
    unknown: Unknown,
    scratch: Scratch,
    spans: Int64Table,
    out: UInt32,
    first: int,
) -> tuple[int, int]:
    """Write the ids of symbols from `first` on, and their spans if wanted; return ids and unknown bytes.

    There may be one place more than bytes, for a mark that stands after them.
    """
    count, lost, at, was_unknown = 0, np.int64(0), np.int64(0), False
    while at < places:
        symbol, after = np.int64(scratch.ids[at]), np.int64(scratch.following[at])
        begin, stop, is_unknown = min(start + at, end), min(start + after, end), symbol >= unknown.first
        if is_unknown and unknown.byte_ids.shape[0] > 0:
            for i in range(begin, stop):
                out[first + count] = np.uint32(unknown.byte_ids[data[i]])
                put_span(spans, first + count, i, i + 1)
                count += 1
        elif is_unknown and was_unknown and unknown.fuse:
            lost += stop - begin
            if spans.shape[0] > 0:
                spans[first + count - 1, 1] = stop
        else:
            out[first + count] = np.uint32(unknown.token if is_unknown else symbol)
            put_span(spans, first + count, begin, stop)
            count += 1
            lost += stop - begin if is_unknown else 0
        at, was_unknown = after, is_unknown
    return count, lost


@kernel(inline=True)
def start_bytes(data: BytesIn, start: int, length: int, tables: PairTables, scratch: Scratch) -> None:
    """Put one symbol per byte."""
    for at in range(length):
        put_symbol(tables.byte_ids[data[start + at]], at, at + 1, at - 1, scratch)


@kernel(inline=True)
def write_symbols(length: int, scratch: Scratch, out: UInt32, first: int) -> int:
    """Write the symbols into `out` from `first` on; return their number."""
    count, at = np.int64(0), np.int64(0)
    while at < length:
        out[first + count] = scratch.ids[at]
        count += 1
        at = np.int64(scratch.following[at])
    return count


@kernel(inline=True)
def merge_bytes(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> tuple[int, int]:
    """Encode bytes into `out` from `first` on; return the number of ids, and the rank of the last merge."""
    start_bytes(data, start, end - start, tables, scratch)
    last = merge_symbols(end - start, tables, scratch)
    return write_symbols(end - start, scratch, out, first), last


@kernel
def find_last_merges(
    tables: PairTables,
    token_data: BytesIn,
    token_offsets: Int64In,
    tokens: Int64In,
    ranks: Int32,
    scratch: Scratch,
    out: UInt32,
) -> None:
    """Find the rank of the last merge in encoding each token's own bytes.

    A token whose bytes merge to something else is not found in any encoding: the bytes inside of a token
    are merged in the same order wherever it stands.
    """
    for k in range(tokens.shape[0]):
        token = tokens[k]
        start, end = token_offsets[token], token_offsets[token + 1]
        count, last = merge_bytes(token_data, start, end, tables, scratch, out, np.int64(0))
        ranks[token] = last if count == 1 and np.int64(out[0]) == token else -1


@kernel
def derive_merges(
    tables: PairTables,
    token_data: BytesIn,
    token_offsets: Int64In,
    by_length: Int64In,
    rank_of: Int32In,
    parents: Int64,
    scratch: Scratch,
    out: UInt32,
) -> None:
    """Find the merge that makes each token of a vocabulary that is only a list of byte strings.

    A token's parents are the two tokens that its own bytes end in when they are merged by all shorter
    tokens, lowest rank first: the bytes inside of a token are merged in the same order wherever it stands,
    so no other pair can ever make it. A token whose bytes end in more than two can not be reached.
    """
    for k in range(by_length.shape[0]):
        token = by_length[k]
        start, end = token_offsets[token], token_offsets[token + 1]
        parents[token] = -1
        count, _ = merge_bytes(token_data, start, end, tables, scratch, out, np.int64(0))
        if count == 2:
            parents[token] = np.int64(out[0]) << 32 | np.int64(out[1])
            insert(tables, np.int32(out[0]), np.int32(out[1]), rank_of[token], np.int32(token))
