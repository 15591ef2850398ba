"""Give out documents in order of their draw times, but none before it is eligible.

Documents arrive by ascending draw time. Giving one out advances the time by its tokens, so that the real time
deviates a little from the draw times. A document whose turn comes too early waits until it is eligible, and
then precedes all later ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, UInt32

EARLY, READY = 0, 1
_SAME = 1e-12


class Waiting(NamedTuple):
    """Documents whose turn came too early, in two heaps of slots.

    Attributes:
        rows: int64 [room], number of the document in each slot, among all arrivals.
        lengths: float64 [room], its tokens.
        releases: float64 [room], time at which it becomes eligible.
        times: float64 [room], its draw time.
        early: int64 [room], slots by ascending release.
        ready: int64 [room], slots that have become eligible, by ascending time.
        free: int64 [room]; the first `room - sizes[0] - sizes[1]` are the free slots.
        sizes: int64 [2], entries in `early` and `ready`.
    """

    rows: Int64
    lengths: NDArray[np.float64]
    releases: NDArray[np.float64]
    times: NDArray[np.float64]
    early: Int64
    ready: Int64
    free: Int64
    sizes: Int64


class Arrivals(NamedTuple):
    """The next documents by ascending time.

    Attributes:
        lengths: uint32 [n], tokens.
        releases: float64 [n].
        times: float64 [n].
        first: number of the first one among all arrivals.
    """

    lengths: UInt32
    releases: NDArray[np.float64]
    times: NDArray[np.float64]
    first: int


@kernel
def hand_out(
    arrivals: Arrivals,
    over: bool,
    waiting: Waiting,
    taken: Int64,
    now: NDArray[np.float64],
    out: Int64,
) -> int:
    """Give out documents until the arrivals, the room for waiting ones or `out` are used up.

    Args:
        arrivals: the next documents.
        over: whether these are the last arrivals.
        waiting: changed.
        taken: int64 [1], number of arrivals taken; changed.
        now: float64 [1], tokens given out; changed.
        out: int64 [n], written: numbers of the documents given out.

    Returns:
        Number of documents given out.
    """
    handed = 0
    while handed < len(out):
        _make_ready(waiting, now[0])
        at = taken[0]
        if waiting.sizes[READY]:
            slot = _pop(waiting.ready, waiting.times, waiting.sizes, READY)
        elif at < len(arrivals.lengths):
            if arrivals.releases[at] <= _soon(now[0]):
                out[handed] = arrivals.first + at
                now[0] += arrivals.lengths[at]
                handed += 1
            elif waiting.sizes[EARLY] < len(waiting.rows):
                _hold(waiting, arrivals, at)
            else:
                break
            taken[0] = at + 1
            continue
        elif over and waiting.sizes[EARLY]:
            # All eligible documents are out: give the next one to become eligible. Only rounding leads here.
            slot = _pop(waiting.early, waiting.releases, waiting.sizes, EARLY)
        else:
            break
        out[handed] = waiting.rows[slot]
        now[0] += waiting.lengths[slot]
        handed += 1
        waiting.free[len(waiting.rows) - waiting.sizes[EARLY] - waiting.sizes[READY] - 1] = slot
    return handed


@kernel(inline=True)
def _soon(now: float) -> float:
    """The time up to which releases count as passed: differences below one token are rounding errors."""
    return now * (1 + _SAME) + 0.5


@kernel(inline=True)
def _make_ready(waiting: Waiting, now: float) -> None:
    """Move the documents that have become eligible from `early` to `ready`."""
    while waiting.sizes[EARLY] and waiting.releases[waiting.early[0]] <= _soon(now):
        slot = _pop(waiting.early, waiting.releases, waiting.sizes, EARLY)
        _push(waiting.ready, waiting.times, waiting.sizes, READY, slot)


@kernel(inline=True)
def _hold(waiting: Waiting, arrivals: Arrivals, at: int) -> None:
    slot = waiting.free[len(waiting.rows) - waiting.sizes[EARLY] - waiting.sizes[READY] - 1]
    waiting.rows[slot] = arrivals.first + at
    waiting.lengths[slot] = arrivals.lengths[at]
    waiting.releases[slot] = arrivals.releases[at]
    waiting.times[slot] = arrivals.times[at]
    _push(waiting.early, waiting.releases, waiting.sizes, EARLY, slot)


@kernel(inline=True)
def _push(heap: Int64, keys: NDArray[np.float64], sizes: Int64, which: int, slot: int) -> None:
    """Put a slot into a heap whose smallest key is first."""
    at = sizes[which]
    sizes[which] = at + 1
    while at > 0 and keys[heap[(at - 1) // 2]] > keys[slot]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = slot


@kernel(inline=True)
def _pop(heap: Int64, keys: NDArray[np.float64], sizes: Int64, which: int) -> int:
    """Take the slot with the smallest key out of a heap."""
    first = heap[0]
    sizes[which] -= 1
    size = sizes[which]
    slot = heap[size]
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[slot]:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    if size:
        heap[at] = slot
    return first
