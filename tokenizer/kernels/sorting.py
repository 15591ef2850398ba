"""Sorting byte strings that lie in one buffer: by merging runs that are sorted already, or from any order.

From any order, they are compared by keys of the seven bytes at a depth, and those with equal keys are sorted
at a greater depth (Bentley and Sedgewick 1997, with seven bytes for one character). A key's last byte says
how many bytes were left: a string that ends comes before those that go on.

Substrings are found in sorted suffixes. Neighbours share their longest prefixes, so all occurrences of a
substring lie side by side. A stack holds the substrings that the suffixes so far go on with, each deeper than
the one below; what is taken off it is a class of substrings that occur at the same places: those longer than
the next one on the stack.
"""

import math
from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import (
    Bytes,
    BytesIn,
    Float64,
    Float64In,
    Int64,
    Int64In,
    Int64Table,
    UInt64,
    UInt64In,
)
from tokmill.tokenizer.jit.intrinsics import prefetch
from tokmill.tokenizer.kernels.characters import continues, next_character

_GOES_ON = np.uint64(8)
_BYTE = np.uint64(0xFF)
_EIGHT = np.uint64(8)
_STEP = 7
_FEW = 12
_KEYS_AHEAD, _AHEAD = 8, 16
_BUCKETS_A_DOUBLING = 64

MAX_PARTS = 200
NUM_BUCKETS = 1 << 13


@kernel(inline=True)
def key_at(data: BytesIn, starts: Int64In, ends: Int64In, string: int, depth: int) -> np.uint64:
    """Return a string's key at a depth, which is at most its length."""
    start, end = starts[string] + depth, ends[string]
    key = np.uint64(0)
    for i in range(start, start + _STEP):
        key = key << _EIGHT | np.uint64(data[i] if i < end else 0)
    return key << _EIGHT | (_GOES_ON if end - start > _STEP else np.uint64(end - start))


@kernel(inline=True)
def read_keys(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    order: Int64,
    keys: UInt64,
    first: int,
    end: int,
    depth: int,
) -> None:
    """Read the keys at a depth of the strings that stand at `first` to `end` in the order."""
    for k in range(first, end):
        prefetch(data, starts[order[min(k + _KEYS_AHEAD, end - 1)]] + depth)
        keys[k] = key_at(data, starts, ends, order[k], depth)


@kernel(inline=True)
def is_less(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    key: np.uint64,
    one: int,
    other_key: np.uint64,
    other: int,
    depth: int,
) -> bool:
    """Whether a string with a key is less than another, where both are alike up to a depth."""
    while key == other_key and key & _BYTE == _GOES_ON:
        depth += _STEP
        key, other_key = key_at(data, starts, ends, one, depth), key_at(data, starts, ends, other, depth)
    return key < other_key


@kernel(inline=True)
def insert_strings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    order: Int64,
    keys: UInt64,
    first: int,
    end: int,
    depth: int,
) -> None:
    """Sort a few strings by insertion."""
    for k in range(first + 1, end):
        key, string, hole = keys[k], order[k], k
        while hole > first and is_less(
            data, starts, ends, key, string, keys[hole - 1], order[hole - 1], depth
        ):
            keys[hole], order[hole] = keys[hole - 1], order[hole - 1]
            hole -= 1
        keys[hole], order[hole] = key, string


@kernel(inline=True)
def swap(order: Int64, keys: UInt64, one: int, other: int) -> None:
    """Let two strings change places."""
    keys[one], keys[other] = keys[other], keys[one]
    order[one], order[other] = order[other], order[one]


@kernel(inline=True)
def part_in_three(order: Int64, keys: UInt64, first: int, end: int) -> tuple[int, int]:
    """Part strings into those with a lesser, the same and a greater key than one's; return both edges."""
    one, other, third = keys[first], keys[(first + end) >> 1], keys[end - 1]
    pivot = max(min(one, other), min(max(one, other), third))
    lesser, greater, k = first, end, first
    while k < greater:
        if keys[k] < pivot:
            swap(order, keys, k, lesser)
            lesser += 1
            k += 1
        elif keys[k] > pivot:
            greater -= 1
            swap(order, keys, k, greater)
        else:
            k += 1
    return lesser, greater


@kernel(inline=True)
def put_larger_below(parts: Int64Table, row: int) -> None:
    """Let two parts on the stack change places if the upper one is larger."""
    if parts[row, 1] - parts[row, 0] < parts[row + 1, 1] - parts[row + 1, 0]:
        for column in range(3):
            parts[row, column], parts[row + 1, column] = parts[row + 1, column], parts[row, column]


@kernel
def sort_strings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    order: Int64,
    keys: UInt64,
    parts: Int64Table,
    height: int,
    max_strings: int,
) -> int:
    """Sort strings by their bytes, or go on doing so."""
    if height == 0:
        read_keys(data, starts, ends, order, keys, 0, order.shape[0], 0)
        parts[0, 0], parts[0, 1], parts[0, 2] = 0, order.shape[0], 0
        height = 1
    looked_at = np.int64(0)
    while height > 0 and looked_at < max_strings:
        height -= 1
        first, end, depth = parts[height, 0], parts[height, 1], parts[height, 2]
        looked_at += end - first
        if end - first <= _FEW:
            insert_strings(data, starts, ends, order, keys, first, end, depth)
            continue
        lesser, greater = part_in_three(order, keys, first, end)
        deeper = depth
        if keys[lesser] & _BYTE == _GOES_ON:
            deeper += _STEP
            read_keys(data, starts, ends, order, keys, lesser, greater, deeper)
        parts[height, 0], parts[height, 1], parts[height, 2] = first, lesser, depth
        parts[height + 1, 0], parts[height + 1, 1], parts[height + 1, 2] = lesser, lesser, deeper
        if deeper > depth:
            parts[height + 1, 1] = greater
        parts[height + 2, 0], parts[height + 2, 1], parts[height + 2, 2] = greater, end, depth
        put_larger_below(parts, height)
        put_larger_below(parts, height + 1)
        put_larger_below(parts, height)
        height += 3
    return height


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
    """Merge the sorted runs of an order two by two; return the number of runs that are left."""
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
    """Add up counts of equal neighbours in a sorted order; return the number of distinct strings."""
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


class Stack(NamedTuple):
    """The open classes of substrings; shape (characters of the longest + 2,) each, `weights` apart.

    Attributes:
        depths: bytes of the longest substring of the class.
        firsts: where its first suffix stands in the order.
    """

    depths: Int64
    firsts: Int64


class Substrings(NamedTuple):
    """Substrings that were chosen; shape (room,) each, `scores` apart.

    Attributes:
        firsts: where the first suffix that begins with it stands in the order.
        lengths: its bytes.
    """

    firsts: Int64
    lengths: Int64


@kernel
def shared_prefixes(data: BytesIn, starts: Int64In, ends: Int64In, order: Int64In, shared: Int64) -> None:
    """Write how many bytes of whole characters each suffix shares with the one before it in the order."""
    shared[0] = 0
    for k in range(1, order.shape[0]):
        one, other = starts[order[k - 1]], starts[order[k]]
        most, length = min(ends[order[k - 1]] - one, ends[order[k]] - other), 0
        while length < most and data[one + length] == data[other + length]:
            length += 1
        if length < ends[order[k]] - other:
            while length > 0 and continues(data, other + length):
                length -= 1
        shared[k] = length


@kernel(inline=True)
def bucket_of(score: float) -> int:
    """Return the bucket of a score of at least 1; greater scores are never in lower ones."""
    part, exponent = math.frexp(score)
    return exponent * _BUCKETS_A_DOUBLING + int((part - 0.5) * 2 * _BUCKETS_A_DOUBLING)


@kernel(inline=True)
def put_class(
    data: BytesIn,
    start: int,
    first: int,
    above: int,
    depth: int,
    weight: float,
    least_bucket: int,
    histogram: Int64,
    out: Substrings,
    scores: Float64,
    count: int,
) -> int:
    """Count the substrings of a class that are longer than `above`, and write those of a high score."""
    at, number = start, 0
    while at < start + depth:
        at = next_character(data, at, start + depth)
        number += 1
        if at - start > above and number > 1:
            bucket = bucket_of(weight * number)
            histogram[bucket] += 1
            if bucket >= least_bucket:
                out.firsts[count], out.lengths[count], scores[count] = first, at - start, weight * number
                count += 1
    return count


@kernel
def list_substrings(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    order: Int64In,
    shared: Int64In,
    weights: Float64In,
    least: float,
    least_bucket: int,
    stack: Stack,
    sums: Float64,
    histogram: Int64,
    out: Substrings,
    scores: Float64,
) -> int:
    """List substrings of two characters or more, scored by frequency × characters; return their number."""
    height, count = 0, 0
    for i in range(order.shape[0] + 1):
        depth = shared[i] if i < order.shape[0] else 0
        first, carried = i, 0.0
        while height > 0 and stack.depths[height - 1] > depth:
            height -= 1
            first, carried = stack.firsts[height], carried + sums[height]
            above = depth if height == 0 else max(depth, stack.depths[height - 1])
            if carried >= least:
                start = starts[order[first]]
                found = start, first, above, stack.depths[height], carried
                count = put_class(data, *found, least_bucket, histogram, out, scores, count)
        if height > 0 and stack.depths[height - 1] == depth:
            sums[height - 1] += carried
        elif depth > 0:
            stack.depths[height], stack.firsts[height], sums[height] = depth, first, carried
            height += 1
        if i < order.shape[0]:
            length = ends[order[i]] - starts[order[i]]
            if height > 0 and stack.depths[height - 1] == length:
                sums[height - 1] += weights[order[i]]
            else:
                stack.depths[height], stack.firsts[height], sums[height] = length, i, weights[order[i]]
                height += 1
    return count
