"""Bin packing of pieces into bins of equal capacity: next fit, best fit and first fit.

The caller passes lengths in [1, capacity] and the output arrays. Best fit keeps a list of bins for every
amount of room, and a bit tree over the amounts in use, with 64 children per node. So it finds the smallest
sufficient room in a few word operations, whatever the number of bins. First fit keeps a binary tree over the
bins with the largest room below each node.

Sources: Johnson 1973, "Near-Optimal Bin Packing Algorithms"; van Emde Boas 1975 for the idea of the tree of
bits.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32, Int64, Int64In, UInt64
from tokmill.tokenizer.jit.intrinsics import count_trailing_zeros


class Rooms(NamedTuple):
    """The open bins by their room.

    Attributes:
        newest: int32 [capacity + 1], the bin that got this room last, or -1.
        before: int32 [n], for a bin the one that got the same room before it, or -1.
        bits: uint64, the levels of the tree one after the other, leaves first; a bit is set if there is a
            bin below it.
        levels: int64 [depth + 1], where each level begins in `bits`.
    """

    newest: Int32
    before: Int32
    bits: UInt64
    levels: Int64


@kernel
def next_fit(lengths: Int64In, capacity: int, used: int, bins: Int64, starts: Int64) -> int:
    """Put each piece into the open bin, or into the next one if it does not fit.

    Args:
        lengths: int64 [n].
        capacity: of every bin.
        used: tokens in the open bin, which is bin 0.
        bins: int64 [n], written: the bin of each piece.
        starts: int64 [n], written: its place there.

    Returns:
        Tokens in the bin that is open at the end.
    """
    current = 0
    for k in range(len(lengths)):
        length = lengths[k]
        if used + length > capacity:
            current += 1
            used = 0
        bins[k] = current
        starts[k] = used
        used += length
    return used


@kernel
def longest_first(lengths: Int64In, counts: Int64, order: Int64) -> None:
    """Sort pieces by length, longest first; equally long ones stay in their order.

    Args:
        lengths: int64 [n], in [1, capacity].
        counts: int64 [capacity + 2], zeros; overwritten.
        order: int64 [n], written: indices of pieces.
    """
    top = len(counts) - 2
    for k in range(len(lengths)):
        counts[top - lengths[k] + 1] += 1
    for value in range(1, len(counts)):
        counts[value] += counts[value - 1]
    for k in range(len(lengths)):
        place = top - lengths[k]
        order[counts[place]] = k
        counts[place] += 1


@kernel
def fit_best(lengths: Int64In, order: Int64In, capacity: int, rooms: Rooms, bins: Int64) -> int:
    """Put each piece into the bin that it fills best, or into a new one if it fits into none.

    Args:
        lengths: int64 [n].
        order: int64 [n], the pieces in the order in which they are placed.
        capacity: of every bin.
        rooms: empty; overwritten.
        bins: int64 [n], written: the bin of each piece, numbered as they are opened.

    Returns:
        Number of bins. Of bins with the same room, the one that got it last is used.
    """
    num_bins = 0
    for k in range(len(order)):
        piece = order[k]
        length = lengths[piece]
        room = _least_room(rooms, length)
        if room < 0:
            room = capacity
            current = num_bins
            num_bins += 1
        else:
            current = rooms.newest[room]
            rooms.newest[room] = rooms.before[current]
            if rooms.newest[room] < 0:
                _unmark(rooms, room)
        bins[piece] = current
        left = room - length
        if left > 0:
            if rooms.newest[left] < 0:
                _mark(rooms, left)
            rooms.before[current] = rooms.newest[left]
            rooms.newest[left] = current
    return num_bins


@kernel(inline=True)
def _least_room(rooms: Rooms, length: int) -> int:
    """The smallest room of at least `length` among the bins, or -1."""
    depth = len(rooms.levels) - 1
    level = 0
    position = length
    while level < depth:
        begin = rooms.levels[level]
        if (position >> 6) >= rooms.levels[level + 1] - begin:
            return -1
        word = rooms.bits[begin + (position >> 6)] >> np.uint64(position & 63)
        if word != np.uint64(0):
            position += np.int64(count_trailing_zeros(word))
            break
        position = (position >> 6) + 1
        level += 1
    if level == depth:
        return -1
    while level > 0:
        level -= 1
        word = rooms.bits[rooms.levels[level] + position]
        position = (position << 6) + np.int64(count_trailing_zeros(word))
    return position


@kernel(inline=True)
def _mark(rooms: Rooms, room: int) -> None:
    """Mark this amount of room as in use."""
    for level in range(len(rooms.levels) - 1):
        word = rooms.levels[level] + (room >> 6)
        had = rooms.bits[word]
        rooms.bits[word] = had | (np.uint64(1) << np.uint64(room & 63))
        if had != np.uint64(0):
            break
        room >>= 6


@kernel(inline=True)
def _unmark(rooms: Rooms, room: int) -> None:
    """Mark this amount of room as unused."""
    for level in range(len(rooms.levels) - 1):
        word = rooms.levels[level] + (room >> 6)
        rooms.bits[word] &= ~(np.uint64(1) << np.uint64(room & 63))
        if rooms.bits[word] != np.uint64(0):
            break
        room >>= 6


@kernel
def fit_first(lengths: Int64In, order: Int64In, tree: Int32, bins: Int64) -> int:
    """Put each piece into the first bin that has room for it.

    Args:
        lengths: int64 [n].
        order: int64 [n], the pieces in the order in which they are placed.
        tree: int32 [2 × size], size a power of two ≥ n: node k has children 2k and 2k + 1, leaf size + b is
            bin b; each holds the largest room below it. All n bins are empty; overwritten.
        bins: int64 [n], written: the bin of each piece.

    Returns:
        Number of bins that hold a piece; they are the first ones.
    """
    size = len(tree) // 2
    num_bins = 0
    for k in range(len(order)):
        piece = order[k]
        length = lengths[piece]
        node = 1
        while node < size:
            node *= 2
            if tree[node] < length:
                node += 1
        bins[piece] = node - size
        num_bins = max(num_bins, node - size + 1)
        tree[node] -= length
        node //= 2
        while node >= 1:
            largest = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == largest:
                break
            tree[node] = largest
            node //= 2
    return num_bins


@kernel
def lay_out(
    bins: Int64In, lengths: Int64In, ranks: Int64In, used: Int64, sequences: Int64, starts: Int64
) -> None:
    """Number bins by their ranks, and lay their pieces end to end in the order of the pieces.

    Args:
        bins: int64 [n].
        lengths: int64 [n].
        ranks: int64 [number of bins], the number of each bin.
        used: int64 [number of bins], zeros; overwritten.
        sequences: int64 [n], written: the number of each piece's bin.
        starts: int64 [n], written: its place there.
    """
    for k in range(len(bins)):
        current = bins[k]
        sequences[k] = ranks[current]
        starts[k] = used[current]
        used[current] += lengths[k]


@kernel
def by_sequence(sequences: Int64In, counts: Int64, order: Int64) -> None:
    """Sort pieces by sequence; those of one sequence stay in their order.

    Args:
        sequences: int64 [n], in [0, m).
        counts: int64 [m + 1], zeros; overwritten.
        order: int64 [n], written: indices of pieces.
    """
    for k in range(len(sequences)):
        counts[sequences[k] + 1] += 1
    for value in range(1, len(counts)):
        counts[value] += counts[value - 1]
    for k in range(len(sequences)):
        order[counts[sequences[k]]] = k
        counts[sequences[k]] += 1
