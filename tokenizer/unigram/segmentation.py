"""Segment pre-tokens in the most probable way, or in one that is drawn; also with sums of 32 bits.

sentencepiece rounds sums of scores to 32 bits at every step.

A part of a text may have other pieces from one time to the next, but only if its best segmentation is better
than the second by less than rounding can move. Let M be the size of the best one's score, D by how much the
second is worse, n the number of characters and S the size of the sum before: each of n steps moves a sum s by
at most s / 2^24, so if D > n (S + M) / 2^23 (and a hundredth more, for effects of second order) the best one
stays. A part is remembered with the greatest such S, the *limit*, as one more id; above it, and where adding
may begin at 0 again (`lattice.LOWEST`), it is segmented again.

Parts are cut where no piece can lie across: between characters that stand side by side in no piece, kept as
bits by a hash: a collision costs a cut, never an id.
"""

import math
from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Float64, Int64, Int64In, Int64Table, UInt32, UInt64
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    LONG,
    EncodingCache,
    Fetched,
    empty_block,
    fetch_ahead,
    recall,
    remember,
)
from tokmill.tokenizer.kernels.characters import continues, next_character
from tokmill.tokenizer.kernels.encoding import NOWHERE, Memory, encoding_kernel, sampling_kernel
from tokmill.tokenizer.kernels.words import STEP, unit_of
from tokmill.tokenizer.unigram.expectation import add_logs
from tokmill.tokenizer.unigram.lattice import (
    LOWEST,
    Paths,
    Pieces,
    find_best_path,
    find_steps,
    write_path,
)

NUM_BITS = 1 << 20
_SHIFT = np.uint64(44)  # leaves 20 bits
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORD, _IN_WORD, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)
_MOST = float((1 << 28) - 1)  # an id in the cache has 28 bits
_PER_STEP = 8388608.0 / 1.01


class Parts(NamedTuple):
    """The next parts of a text; shape (BLOCK,) each.

    Attributes:
        starts: where they begin.
        ends: where they end.
    """

    starts: Int64
    ends: Int64


class Room(NamedTuple):
    """Working memory for texts that are cut into parts.

    Attributes:
        parts: the next ones.
        fetched: where they are in the cache.
        second: shape (64,), the second-best score of each place of a part that may be remembered.
        nowhere: shape (0, 2), for spans.
    """

    parts: Parts
    fetched: Fetched
    second: Float64
    nowhere: Int64Table


def make_room() -> Room:
    """Make working memory."""
    return Room(Parts(*np.empty((2, BLOCK), np.int64)), empty_block(), np.empty(64), NOWHERE)


@kernel(inline=True)
def bit_of(data: BytesIn, start: int, at: int, end: int) -> np.uint64:
    """Return the bit of the characters before and after a place in `data[start:end]`.

    It is made of the last two bytes before the place and the first three after it, as far as they are in
    these characters; so that a piece and the text that it is found in have the same.
    """
    key = np.uint64(data[np.uint64(at - 1)]) << np.uint64(24)
    if at - 2 >= start and continues(data, at - 1):
        key |= np.uint64(data[np.uint64(at - 2)]) << np.uint64(32)
    key |= np.uint64(data[np.uint64(at)])
    if at + 1 < end and continues(data, at + 1):
        key |= np.uint64(data[np.uint64(at + 1)]) << np.uint64(8)
        if at + 2 < end and continues(data, at + 2):
            key |= np.uint64(data[np.uint64(at + 2)]) << np.uint64(16)
    return (key * _FACTOR) >> _SHIFT


@kernel
def mark_neighbours(data: BytesIn, offsets: Int64In, tokens: Int64In, bits: UInt64) -> None:
    """Set the bits of all neighbouring characters in pieces."""
    for k in range(tokens.shape[0]):
        start, end = offsets[tokens[k]], offsets[tokens[k] + 1]
        for at in range(start + 1, end):
            if not continues(data, at):
                bit = bit_of(data, start, at, end)
                bits[bit >> _WORD] |= _ONE << (bit & _IN_WORD)


@kernel(inline=True)
def cut_parts(data: BytesIn, start: int, first: int, end: int, bits: UInt64, parts: Parts) -> int:
    """List the parts of `data[start:end]` from the place `first` on, at most BLOCK; return their number."""
    number, begin, at = 0, first, first + 1
    while at < end and number < BLOCK:
        if not continues(data, at):
            bit = bit_of(data, start, at, end)
            if bits[bit >> _WORD] >> (bit & _IN_WORD) & _ONE == 0:
                parts.starts[number], parts.ends[number] = begin, at
                number, begin = number + 1, at
        at += 1
    if number < BLOCK:
        parts.starts[number], parts.ends[number] = begin, end
        number += 1
    return number


@kernel(inline=True)
def find_two_best(
    data: BytesIn, start: int, end: int, pieces: Pieces, paths: Paths, second: Float64
) -> tuple[float, int]:
    """Fill in the best path by sums of 64 bits; return how much worse the second is, and the characters."""
    best, steps, at = paths.best, 0, start
    for place in range(end - start + 1):
        best[place] = second[place] = -np.inf
    best[0] = 0.0
    while at < end:
        after, here, other = next_character(data, at, end), best[at - start], second[at - start]
        for k in range(find_steps(data, at, end, after, pieces, paths.found)):
            to, token = paths.found.ends[k] - start, paths.found.ids[k]
            score = here + pieces.scores[token]
            if score > best[to]:
                second[to] = max(best[to], other + pieces.scores[token])
                best[to], paths.back[to], paths.ids[to] = score, at - start, token
            else:
                second[to] = max(second[to], score)
        at, steps = after, steps + 1
    return best[end - start] - second[end - start], steps


@kernel(inline=True)
def limit_of(margin: float, steps: int, score: float) -> int:
    """Return up to which size of the sum before it a part has the same pieces; negative if never."""
    limit = margin * _PER_STEP / steps + score
    return int(np.floor(min(max(limit, -1.0), _MOST)))


@kernel(inline=True)
def stays_high(total: float, length: int, pieces: Pieces) -> bool:
    """Whether no sum to a character of a part is below LOWEST; a way by single characters bounds them all."""
    return total - length * pieces.worst - 1.0 >= LOWEST  # 1.0 for what rounding adds up to


@kernel(inline=True)
def add_scores(total: float, pieces: Pieces, out: UInt32, at: int, count: int) -> float:
    """Add the scores of ids to a sum, rounding it each time."""
    for i in range(count):
        total = np.float64(np.float32(total + pieces.scores[out[np.uint64(at + i)]]))
    return total


@kernel(inline=True)
def encode_part(
    data: BytesIn,
    start: int,
    end: int,
    row: int,
    pieces: Pieces,
    cache: EncodingCache,
    paths: Paths,
    room: Room,
    total: float,
    out: UInt32,
    at: int,
) -> tuple[int, int, float]:
    """Segment a part that is not remembered, or not for this sum; return ids, unknown bytes, the new sum."""
    length = end - start
    if room.fetched.places[row] != LONG:
        margin, steps = find_two_best(data, start, end, pieces, paths, room.second)
        limit = limit_of(margin, steps, paths.best[length])
        count, lost = write_path(data, start, length, pieces, paths, room.nowhere, out, at)
        known = lost == 0 and not has_unknown(length, pieces, paths)
        if known and limit >= 0:
            out[at + count] = np.uint32(limit)
            remember(data, start, length, row, cache, room.fetched, out, at, count + 1)
            if -total <= limit and stays_high(total, length, pieces):
                return count, lost, add_scores(total, pieces, out, at, count)
    find_best_path(data, start, end, pieces, paths, total)
    count, lost = write_path(data, start, length, pieces, paths, room.nowhere, out, at)
    return count, lost, paths.best[length]


@kernel(inline=True)
def has_unknown(length: int, pieces: Pieces, paths: Paths) -> bool:
    """Whether an unknown character is on the best path."""
    place = length
    while place > 0:
        if paths.ids[place] == pieces.unknown:
            return True
        place = int(paths.back[place])
    return False


@kernel(inline=True)
def joined_unknown(pieces: Pieces, out: UInt32, first: int, at: int, count: int) -> int:
    """Drop a part's first id if it is unknown, as the one before it; return how many are left."""
    if pieces.byte_ids.shape[0] > 0 or at == first or count == 0:
        return count
    if out[at] != pieces.unknown or out[at - 1] != pieces.unknown:
        return count
    for i in range(1, count):
        out[at + i - 1] = out[at + i]
    return count - 1


@kernel
def encode_rounded(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    cache: EncodingCache,
    paths: Paths,
    room: Room,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Encode the pre-token `data[start:end]`, part after part; return the number of ids and unknown bytes."""
    first, total, lost, begin = at, 0.0, 0, start
    while begin < end:
        number = cut_parts(data, start, begin, end, pieces.neighbours, room.parts)
        fetch_ahead(data, room.parts.starts, room.parts.ends, 0, number, cache, room.fetched)
        for row in range(number):
            begin, after = room.parts.starts[row], room.parts.ends[row]
            count = recall(data, begin, after - begin, row, cache, room.fetched, out, at) - 1
            known = count > 0 and -total <= out[at + count]
            if known and stays_high(total, after - begin, pieces):
                total = add_scores(total, pieces, out, at, count)
            else:
                count, unknown, total = encode_part(
                    data, begin, after, row, pieces, cache, paths, room, total, out, at
                )
                lost += unknown
                count = joined_unknown(pieces, out, first, at, count)
            at += count
            begin = after
    return at - first, lost


class Work(NamedTuple):
    """Working memory for one pre-token.

    Attributes:
        paths: see `lattice`.
        room: for pre-tokens that are cut into parts.
    """

    paths: Paths
    room: Room


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, pieces: Pieces, work: Work, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a pre-token; see `kernels.encoding`. Where sums are rounded, the cache is for its parts."""
    if pieces.single and memory.spans.shape[0] == 0:
        return encode_rounded(data, start, end, pieces, memory.cache, work.paths, work.room, out, at)
    find_best_path(data, start, end, pieces, work.paths, 0.0)
    return write_path(data, start, end - start, pieces, work.paths, memory.spans, out, at)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    work: Work,
    spans: Int64Table,
    alpha: float,
    state: np.uint64,
    out: UInt32,
    first: int,
) -> tuple[int, int]:
    """Draw a segmentation of a pre-token: with its own probability to the power of alpha, scaled.

    The sums of what may follow each place are computed from the end, and pieces are drawn from the beginning.
    """
    number, lost, found, behind = first, 0, work.paths.found, work.paths.best
    behind[end - start] = 0.0
    for at in range(end - 1, start - 1, -1):
        if at > start and continues(data, at):
            continue
        total = -math.inf
        for i in range(find_steps(data, at, end, next_character(data, at, end), pieces, found)):
            rest = behind[found.ends[i] - start]
            total = add_logs(total, alpha * pieces.scores[found.ids[i]] + rest)
        behind[at - start] = total
    at, last = start, -1
    while at < end:
        state += STEP
        left = unit_of(state)
        count, chosen = find_steps(data, at, end, next_character(data, at, end), pieces, found), 0
        while chosen < count - 1:
            rest = behind[found.ends[chosen] - start] - behind[at - start]
            left -= math.exp(alpha * pieces.scores[found.ids[chosen]] + rest)
            if left < 0:
                break
            chosen += 1
        token = int(found.ids[chosen])
        if token == pieces.unknown and pieces.byte_ids.shape[0] > 0:
            for place in range(at, found.ends[chosen]):
                out[number] = np.uint32(pieces.byte_ids[data[place]])
                number += 1
        else:
            lost += found.ends[chosen] - at if token == pieces.unknown else 0
            if token != pieces.unknown or last != pieces.unknown:
                out[number] = np.uint32(token)
                number += 1
        last, at = token, found.ends[chosen]
    return number - first, lost


encode_pretokens = encoding_kernel(encode_one, Pieces, Work)
sample_pretokens = sampling_kernel(draw_one, Pieces, Work)
