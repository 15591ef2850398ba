"""Bin packing of pieces, of lengths in [1, capacity], into equal bins, and the order of the bins.

Best fit keeps a list of bins for every amount of room, and a bit tree over the amounts in use, with 64
children per node (van Emde Boas 1975 has the idea), so that the smallest sufficient room is found in a few
word operations. First fit keeps a binary tree over the bins with the largest room below each node (Johnson
1973).

Sequences arrive in the order of their places and wait. The next one is chosen among the waiting ones so that
the tokens of each source, counted from the window's beginning, come nearest to those of the plan at the same
position, by the sum of squared differences: error diffusion (Floyd and Steinberg 1976) with a choice of what
comes next.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Float64, Int32, Int64, Int64In, UInt64
from tokmill.tokenizer.jit.intrinsics import count_trailing_zeros


class Rooms(NamedTuple):
    """The open bins by their room."""

    newest: Int32  # [capacity + 1], the bin that got this room last, or -1
    before: Int32  # [n], for a bin the one that got the same room before it, or -1
    bits: UInt64  # the levels of the tree, leaves first; a bit is set if there is a bin below it
    levels: Int64  # [depth + 1], where each level begins in `bits`

    @classmethod
    def empty(cls, num_pieces: int, capacity: int) -> "Rooms":
        """No bins."""
        sizes = [-(-(capacity + 1) // 64)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // 64))
        newest, before = (np.full(size, -1, dtype=np.int32) for size in (capacity + 1, num_pieces))
        return cls(newest, before, np.zeros(sum(sizes), np.uint64), np.cumsum([0, *sizes], dtype=np.int64))


@kernel
def next_fit(lengths: Int64In, capacity: int, used: int, bins: Int64, starts: Int64) -> int:
    """Put each piece into the open bin, with `used` tokens in it, or into the next one if it does not fit.

    Writes the bin of each piece, from 0, the open one, and its place there; returns the tokens in the last
    bin.
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
def fit_best(lengths: Int64In, order: Int64In, capacity: int, rooms: Rooms, bins: Int64) -> None:
    """Put each piece, in this order, into the bin that it fills best, or into a new one if it fits into none.

    Writes the bin of each piece, numbered as they are opened. Of bins with the same room, the last one to get
    it is used.
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
def fit_first(lengths: Int64In, order: Int64In, tree: Int32, bins: Int64) -> None:
    """Put each piece, in this order, into the first bin that has room for it.

    `tree` [2 × size] is filled with the capacity, for a power of two of at least n: node k has the children
    2k and 2k + 1, leaf size + b is bin b; each holds the largest room below it. Writes the bin of each piece.
    """
    size = len(tree) // 2
    for k in range(len(order)):
        piece = order[k]
        length = lengths[piece]
        node = 1
        while node < size:
            node *= 2
            if tree[node] < length:
                node += 1
        bins[piece] = node - size
        tree[node] -= length
        node //= 2
        while node >= 1:
            largest = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == largest:
                break
            tree[node] = largest
            node //= 2


class Parts(NamedTuple):
    """The tokens per source of n sequences, which are numbered in the order of their places."""

    firsts: Int64  # [n + 1]; sequence k has the parts [firsts[k], firsts[k + 1]), one for each source in it
    sources: Int64  # [p], the source of each part
    tokens: Int64  # [p], its tokens; at least 1


class InPlan(NamedTuple):
    """The same tokens in the order of the plan."""

    ends: Int64  # [q], where each piece ends, counted in tokens; ascending
    sources: Int64  # [q], the source of each piece


@kernel
def line_up(  # noqa: PLR0913, PLR0917
    parts: Parts,
    plan: InPlan,
    capacity: int,
    longest_wait: int,
    waiting: Int64,
    arrived: Int64,
    surplus: Float64,
    coming: Float64,
    lined: Int64,
) -> None:
    """Decide the order of sequences of `capacity` tokens; at most `longest_wait` may overtake a waiting one.

    Writes `lined` [n], the sequences in their order; ties go to the first one. Scratch: `waiting` and the
    turn of each's arrival, [w]; by source, zeros, the tokens given beyond those of the plan, and those that
    it gives next.
    """
    num_waiting, num_come = 0, 0
    near = near_at = far = far_at = np.int64(0)
    for turn in range(len(lined)):
        while num_waiting < len(waiting) and num_come < len(lined):
            waiting[num_waiting] = num_come
            arrived[num_waiting] = turn
            num_waiting += 1
            num_come += 1
        far, far_at = _walk(plan, far, far_at, near_at + capacity, coming, 1.0)
        chosen = 0
        if turn - arrived[0] < longest_wait:
            chosen = _nearest(parts, waiting, num_waiting, surplus, coming)
        current = waiting[chosen]
        num_waiting -= 1
        for k in range(chosen, num_waiting):
            waiting[k] = waiting[k + 1]
            arrived[k] = arrived[k + 1]
        lined[turn] = current
        filled = 0
        for part in range(parts.firsts[current], parts.firsts[current + 1]):
            surplus[parts.sources[part]] += parts.tokens[part]
            filled += parts.tokens[part]
        _walk(plan, near, near_at, near_at + filled, surplus, -1.0)
        near, near_at = _walk(plan, near, near_at, near_at + filled, coming, -1.0)


@kernel(inline=True)
def _walk(plan: InPlan, piece: int, at: int, goal: int, sums: Float64, sign: float) -> tuple[int, int]:
    """Add the plan's tokens [at, goal) to the sums of their sources; return the piece and place reached."""
    while at < goal and piece < len(plan.ends):
        stop = min(plan.ends[piece], goal)
        sums[plan.sources[piece]] += sign * (stop - at)
        at = stop
        if at == plan.ends[piece]:
            piece += 1
    return piece, at


@kernel(inline=True)
def _nearest(parts: Parts, waiting: Int64, num_waiting: int, surplus: Float64, coming: Float64) -> int:
    """The waiting sequence that leaves the least sum of squared surpluses, once the plan gives `coming`."""
    total, squares, product = 0.0, 0.0, 0.0
    for source in range(len(coming)):
        total += coming[source]
    for source in range(len(coming)):
        share = coming[source] / total
        squares += share * share
        product += share * surplus[source]
    best, least = 0, np.inf
    for k in range(num_waiting):
        first, stop = parts.firsts[waiting[k]], parts.firsts[waiting[k] + 1]
        filled, found = 0.0, 0.0
        for part in range(first, stop):
            filled += parts.tokens[part]
        for part in range(first, stop):
            source, size = parts.sources[part], float(parts.tokens[part])
            given = filled * coming[source] / total
            found += size * (size + 2.0 * (surplus[source] - given))
        found += filled * (filled * squares - 2.0 * product)
        if found < least:
            best, least = k, found
    return best
