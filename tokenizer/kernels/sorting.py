"""Sorting byte strings that lie in one buffer, by merging runs that are sorted already."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt64, UInt64In
from tokmill.tokenizer.jit.intrinsics import prefetch

_EIGHT = np.uint64(8)
_AHEAD = 16


@kernel
def read_prefixes(data: BytesIn, offsets: Int64In, prefixes: UInt64) -> None:
    """Read the first eight bytes of each string as a big-endian number, zeros where it is shorter."""
    for i in range(prefixes.shape[0]):
        prefix = np.uint64(0)
        for position in range(offsets[i], offsets[i] + 8):
            prefix <<= _EIGHT
            if position < offsets[i + 1]:
                prefix |= np.uint64(data[position])
        prefixes[i] = prefix


@kernel(inline=True)
def compare(data: BytesIn, offsets: Int64In, prefixes: UInt64In, first: int, second: int) -> int:
    """Compare two strings: negative, zero or positive as the first is smaller, equal or greater."""
    if prefixes[first] != prefixes[second]:
        return -1 if prefixes[first] < prefixes[second] else 1
    first_length = offsets[first + 1] - offsets[first]
    second_length = offsets[second + 1] - offsets[second]
    for i in range(8, min(first_length, second_length)):
        difference = np.int64(data[offsets[first] + i]) - np.int64(data[offsets[second] + i])
        if difference != 0:
            return difference
    return first_length - second_length


@kernel
def merge_neighbours(
    data: BytesIn,
    offsets: Int64In,
    prefixes: UInt64In,
    runs: Int64,
    order: Int64,
    merged: Int64,
) -> int:
    """Merge the sorted runs of an order two by two.

    Args:
        data: the strings.
        offsets: shape (n + 1,).
        prefixes: shape (n,), from `read_prefixes`.
        runs: shape (at least the number of runs + 1,), where runs begin and, last, n; changed, ends with n.
        order: shape (n,), indices of strings; each run of them is sorted.
        merged: shape (n,); receives the order in which half as many runs are sorted.

    Returns:
        The number of runs that are left.
    """
    total, left, made = order.shape[0], 0, 0
    while runs[left] < total:
        middle = runs[left + 1]
        end = runs[left + 2] if middle < total else middle
        i, j = runs[left], middle
        for k in range(runs[left], end):
            if j >= end or (i < middle and compare(data, offsets, prefixes, order[i], order[j]) <= 0):
                merged[k] = order[i]
                i += 1
            else:
                merged[k] = order[j]
                j += 1
        runs[made] = runs[left]
        made += 1
        left += 2 if middle < total else 1
    runs[made] = total
    return made


@kernel
def sum_equal(
    data: BytesIn,
    offsets: Int64In,
    prefixes: UInt64In,
    order: Int64In,
    counts: UInt64In,
    firsts: Int64,
    sums: UInt64,
) -> int:
    """Add up the counts of equal strings that stand side by side in an order.

    Args:
        data: the strings.
        offsets: shape (n + 1,).
        prefixes: shape (n,), from `read_prefixes`.
        order: shape (n,), sorted.
        counts: shape (n,).
        firsts: shape (n,); receives one index of each distinct string, in order.
        sums: shape (n,); receives its count.

    Returns:
        The number of distinct strings.
    """
    distinct = 0
    for k in range(order.shape[0]):
        if k > 0 and compare(data, offsets, prefixes, order[k - 1], order[k]) == 0:
            sums[distinct - 1] += counts[order[k]]
        else:
            firsts[distinct], sums[distinct] = order[k], counts[order[k]]
            distinct += 1
    return distinct


@kernel
def gather_strings(data: BytesIn, offsets: Int64In, order: Int64In, out: Bytes, out_offsets: Int64) -> None:
    """Lay strings one after the other in a given order; `out_offsets` has one more element than there are."""
    total, place = order.shape[0], np.uint64(0)
    out_offsets[0] = 0
    for k in range(total):
        prefetch(data, offsets[order[min(k + _AHEAD, total - 1)]])
        start, length = np.uint64(offsets[order[k]]), np.uint64(offsets[order[k] + 1] - offsets[order[k]])
        for i in range(length):  # an index that cannot be negative needs no check for it: this is vector code
            out[place + np.uint64(i)] = data[start + np.uint64(i)]
        place += length
        out_offsets[k + 1] = np.int64(place)
