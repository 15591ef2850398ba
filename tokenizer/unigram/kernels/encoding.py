"""Encode pre-tokens: each is looked up in a cache, and segmented only if it is not there.

Pre-tokens with unknown characters are not remembered, since the bytes that they lose are counted.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32
from tokmill.tokenizer.kernels.cache import BLOCK, EncodingCache, Fetched, fetch_ahead
from tokmill.tokenizer.unigram.kernels.lattice import Paths, Pieces, find_best_path, write_ends, write_path
from tokmill.tokenizer.unigram.kernels.rounded import Room, encode_rounded, recall, remember

SEGMENT, PRETOKEN, NUM_IDS = 0, 1, 2
"""Indices in `progress`: the next segment, the next pre-token, and the number of ids so far."""

DONE, PAUSED = 0, -1
"""Why `encode_pretokens` returned, unless it lacked scratch."""


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        paths: see `lattice`.
        fetched: where a block of pre-tokens is in the cache.
        room: for pre-tokens that are cut into parts.
    """

    cache: EncodingCache
    paths: Paths
    fetched: Fetched
    room: Room


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
    """Encode the pre-tokens of segments, from the place in `progress` (zeros at first) on.

    `out` has room for one id per byte and eight more; a block that begins at `until` or later is not begun.
    Returns DONE; PAUSED at `until`; or the length of a pre-token that is longer than the scratch. A further
    call, with another `until` or more scratch, goes on from there.
    """
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
                if longest >= memory.paths.back.shape[0]:
                    lacking = longest
                    break
                if starts[k] >= until:
                    lacking = PAUSED
                    break
            start, length = starts[k], ends[k] - starts[k]
            if pieces.single:
                count, lost = encode_rounded(
                    data, start, ends[k], pieces, memory.cache, memory.paths, memory.room, out, position
                )
                unknown_bytes[segment] += lost
            else:
                count = recall(data, start, length, k - block, memory.cache, memory.fetched, out, position)
                if count == 0:
                    find_best_path(data, start, ends[k], pieces, memory.paths, 0.0)
                    count, lost = write_path(data, start, length, pieces, memory.paths, out, position)
                    unknown_bytes[segment] += lost
                    if lost == 0:
                        remember(
                            data, start, length, k - block, memory.cache, memory.fetched, out, position, count
                        )
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
    paths: Paths,
    ids: UInt32,
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
            length = ends[k] - starts[k]
            find_best_path(data, starts[k], ends[k], pieces, paths, 0.0)
            count, _ = write_path(data, starts[k], length, pieces, paths, ids, number)
            write_ends(starts[k], length, pieces, paths, count, out, number)
            number += count
    return number
