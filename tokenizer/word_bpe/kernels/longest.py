"""Cut a word by taking the longest piece first: the longest anywhere in it, then the longest in the rest.

Of equally long pieces the leftmost is taken. A piece is as long as it has letters; the mark is one if it
stands apart. Letters that no piece covers stay as they are. A heap has the longest piece from each place; one
that reaches into what is taken by now is looked for again when it comes up.
"""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn
from tokmill.tokenizer.kernels.merges import POSITION_BITS, POSITION_MASK, Scratch, sift_down, sift_up
from tokmill.tokenizer.kernels.token_trie import longest_token
from tokmill.tokenizer.word_bpe.kernels.merging import Pieces

_MOST = np.uint64(0xFFFFFFFF)


@kernel(inline=True)
def num_characters(data: BytesIn, start: int, end: int, by_bytes: bool) -> int:
    """Return the number of characters from `start` to `end`."""
    if by_bytes:
        return end - start
    number = 0
    for i in range(start, end):
        number += 1 if data[i] & 0xC0 != 0x80 else 0
    return number


@kernel(inline=True)
def longest_from(
    data: BytesIn, start: int, length: int, at: int, limit: int, last: int, pieces: Pieces
) -> tuple[int, int, int]:
    """Find the longest piece from a place on.

    Args:
        data: the text.
        start: where the word begins.
        length: its bytes.
        at: the place.
        limit: the next place that is taken, or the number of places.
        last: the place behind which only pieces with the mark may reach.
        pieces: the vocabulary.

    Returns:
        The piece, -1 for none; the place after it; and how long it is.
    """
    token, after, end = np.int64(-1), start + at, start + length
    if at >= length:  # the mark that stands apart
        return token, at, 0
    if limit == length + (1 if pieces.mark >= 0 else 0) and length - at <= pieces.longest:
        token, after = longest_token(data, start + at, end, pieces.final)
        if token >= 0 and after == end:
            return token, limit, num_characters(data, start + at, end, pieces.by_bytes) + limit - length
    inner = start + min(limit, last)
    if start + at >= inner:
        return np.int64(-1), at, 0
    token, after = longest_token(data, start + at, inner, pieces.whole)
    return token, after - start, num_characters(data, start + at, after, pieces.by_bytes)


@kernel(inline=True)
def next_taken(at: int, places: int, pieces: Pieces, scratch: Scratch) -> int:
    """Return the next place that is taken, `places` if there is none; it may be too far for any piece."""
    place = at
    while place < places and scratch.preceding[place] >= 0:
        if place - at > pieces.longest:
            return place
        place += 1
    return place


@kernel(inline=True)
def take_longest(
    data: BytesIn, start: int, length: int, places: int, pieces: Pieces, scratch: Scratch
) -> None:
    """Cut a word whose symbols are set up; `preceding` becomes -1 where a place is taken."""
    size, at, last = np.int64(0), np.int64(0), np.int64(0)
    while at < places:
        last = at
        at = np.int64(scratch.following[at])
    last = length if pieces.mark >= 0 else last
    for place in range(places):
        scratch.preceding[place] = 0
    at = np.int64(0)
    while at < places:
        token, _, amount = longest_from(data, start, length, at, places, last, pieces)
        if token >= 0 and amount > 1:
            sift_up(scratch.heap, size, (_MOST - np.uint64(amount)) << POSITION_BITS | np.uint64(at))
            size += 1
        at = np.int64(scratch.following[at])
    while size > 0:
        top = scratch.heap[0]
        size -= 1
        sift_down(scratch.heap, size, np.int64(0), scratch.heap[size])
        at = np.int64(top & POSITION_MASK)
        if scratch.preceding[at] < 0:
            continue
        limit = next_taken(at, places, pieces, scratch)
        token, after, amount = longest_from(data, start, length, at, limit, last, pieces)
        if token < 0 or amount < 2:
            continue
        item = (_MOST - np.uint64(amount)) << POSITION_BITS | np.uint64(at)
        if item != top:
            sift_up(scratch.heap, size, item)
            size += 1
            continue
        scratch.ids[at], scratch.following[at] = token, after
        for place in range(at, after):
            scratch.preceding[place] = -1
