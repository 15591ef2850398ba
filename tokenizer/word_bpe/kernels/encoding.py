"""Encode the words of segments: each is looked up in a cache, and cut only if it is not there.

Words with unknown characters are not remembered, since the bytes that they lose are counted.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, Int64Table, UInt32
from tokmill.tokenizer.kernels.cache import (
    BLOCK,
    MIDDLE,
    EncodingCache,
    Fetched,
    fetch_ahead,
    recall_middle,
    recall_short,
    remember_middle,
    remember_short,
)
from tokmill.tokenizer.kernels.merges import Scratch, merge_symbols
from tokmill.tokenizer.word_bpe.kernels.longest import take_longest
from tokmill.tokenizer.word_bpe.kernels.merging import Pieces, start_word, write_word


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        scratch: see `kernels.merges`; with one place more than the longest word has bytes.
        fetched: where a block of words is in the cache.
        nowhere: shape (0, 2), the places of ids, which are not wanted.
    """

    cache: EncodingCache
    scratch: Scratch
    fetched: Fetched
    nowhere: Int64Table


@kernel(inline=True)
def cut_word(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    scratch: Scratch,
    ids: UInt32,
    spans: Int64Table,
    first: int,
) -> tuple[int, int]:
    """Write the ids of a word; return their number, and the number of unknown bytes."""
    places = start_word(data, start, end, pieces, scratch)
    if pieces.by_length:
        take_longest(data, start, end - start, places, pieces, scratch)
    else:
        merge_symbols(places, pieces.pairs, scratch)
    return write_word(start, end - start, places, pieces, scratch, ids, spans, first)


@kernel(inline=True)
def encode_word(
    data: BytesIn, start: int, end: int, row: int, pieces: Pieces, memory: Memory, ids: UInt32, first: int
) -> tuple[int, int]:
    """Write the ids of a word, which may be remembered; return the number of ids and of unknown bytes."""
    place, length = memory.fetched.places[row], end - start
    low, high = memory.fetched.lows[row], memory.fetched.highs[row]
    count = 0
    if place >= 0:
        count = recall_short(memory.cache, place, low, high, ids, first)
    elif place <= MIDDLE:
        count = recall_middle(memory.cache, MIDDLE - place, data, start, length, ids, first)
    if count > 0:
        return count, 0
    count, lost = cut_word(data, start, end, pieces, memory.scratch, ids, memory.nowhere, first)
    if lost > 0:
        return count, lost
    if place >= 0:
        remember_short(memory.cache, place, low, high, ids, first, count)
    elif place <= MIDDLE:
        remember_middle(memory.cache, MIDDLE - place, data, start, length, ids, first, count)
    return count, 0


@kernel
def encode_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    edges: Int64In,
    pieces: Pieces,
    memory: Memory,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
) -> int:
    """Write the ids of the words of some segments.

    Args:
        data: the text.
        starts: shape (num_words,); word k is `data[starts[k]:ends[k]]`.
        ends: shape (num_words,).
        bounds: shape (num_segments + 1,); segment s has the words from `bounds[s]` to `bounds[s + 1]`.
        kinds: shape (num_segments,); -1 for text, or the id that stands for the whole segment.
        edges: shape (num_segments + 1,); where each segment begins in the text.
        pieces: the vocabulary.
        memory: working memory.
        ids: with room for an id per byte of a word, per word and per segment, and eight more; written.
        id_ends: shape (num_segments + 1,); written: where the ids of each segment end.
        lost_bytes: shape (num_segments,); written: bytes of unknown text, and of white space.

    Returns:
        How many ids were written.
    """
    number = np.int64(0)
    id_ends[0] = 0
    for segment in range(kinds.shape[0]):
        first, last = bounds[segment], bounds[segment + 1]
        lost = edges[segment + 1] - edges[segment]
        if kinds[segment] >= 0:
            ids[number] = np.uint32(kinds[segment])
            number += 1
            lost = lost if kinds[segment] == pieces.unknown_id else np.int64(0)
            first = last
        for begin in range(first, last, BLOCK):
            end = min(begin + BLOCK, last)
            fetch_ahead(data, starts, ends, begin, end, memory.cache, memory.fetched)
            for k in range(begin, end):
                count, missed = encode_word(data, starts[k], ends[k], k - begin, pieces, memory, ids, number)
                number += count
                lost += missed - (ends[k] - starts[k])
        lost_bytes[segment] = lost
        id_ends[segment + 1] = number
    return number


@kernel
def locate_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    kinds: Int64In,
    edges: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    ids: UInt32,
    spans: Int64Table,
) -> int:
    """Write the ids of some segments, and where each begins and ends; see `encode_words`.

    Args:
        data: the text.
        starts: of the words.
        ends: of the words.
        bounds: of the segments in the words.
        kinds: of the segments.
        edges: of the segments in the text.
        pieces: the vocabulary.
        scratch: working memory.
        ids: with room as in `encode_words`; written.
        spans: shape (the same, 2); written.

    Returns:
        How many ids were written.
    """
    number = np.int64(0)
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            ids[number] = np.uint32(kinds[segment])
            spans[number, 0], spans[number, 1] = edges[segment], edges[segment + 1]
            number += 1
            continue
        for k in range(bounds[segment], bounds[segment + 1]):
            count, _ = cut_word(data, starts[k], ends[k], pieces, scratch, ids, spans, number)
            number += count
    return number
