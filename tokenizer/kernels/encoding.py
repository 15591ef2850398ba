"""From pre-tokens to ids: a pre-token is looked up in a cache, and merged only if it is not there."""

from typing import NamedTuple

import numpy as np

from tokenizer.kernels.arrays import Bytes, BytesIn, Int32, Int64, Int64In, UInt32
from tokenizer.kernels.encoding_cache import (
    INLINE_IDS,
    MAX_CACHED,
    EncodingCache,
    recall_long,
    recall_short,
    remember_long,
    remember_short,
)
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.merges import Scratch, merge_bytes
from tokenizer.kernels.pairs import PairTables
from tokenizer.kernels.words import MAX_SHORT, equal_bytes, hash_long, hash_short, load_short

_HALF = np.uint64(32)


class WholeTokens(NamedTuple):
    """Tokens that merging does not lead to, and that a pre-token of exactly their bytes becomes all the same.

    Attributes:
        size: how many there are.
        slots: shape (a power of two,), ids by hash, -1 where empty.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
    """

    size: int
    slots: Int32
    token_data: Bytes
    token_offsets: Int64


@kernel(inline=True)
def whole_token(data: BytesIn, start: int, end: int, whole: WholeTokens) -> int:
    """Return the id of the token that has exactly these bytes, or -1."""
    mask = np.int64(whole.slots.shape[0] - 1)
    slot = np.int64(hash_long(data, start, end) >> _HALF) & mask
    while whole.slots[slot] >= 0:
        token = np.int64(whole.slots[slot])
        first, last = whole.token_offsets[token], whole.token_offsets[token + 1]
        if last - first == end - start and equal_bytes(data, start, whole.token_data, first, end - start):
            return token
        slot = (slot + 1) & mask
    return -1


@kernel
def index_whole_tokens(slots: Int32, token_data: BytesIn, token_offsets: Int64In, tokens: Int64In) -> None:
    """Enter tokens, given by id, into the slots of `WholeTokens`."""
    mask = np.int64(slots.shape[0] - 1)
    for i in range(tokens.shape[0]):
        token = tokens[i]
        slot = np.int64(hash_long(token_data, token_offsets[token], token_offsets[token + 1]) >> _HALF) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = token


@kernel(inline=True)
def encode_anew(
    data: BytesIn,
    start: int,
    end: int,
    tables: PairTables,
    whole: WholeTokens,
    scratch: Scratch,
    out: UInt32,
    at: int,
) -> int:
    """Encode one pre-token without a cache; return how many ids were written to `out` from `at` on."""
    if whole.size > 0:
        token = whole_token(data, start, end, whole)
        if token >= 0:
            out[at] = token
            return 1
    return merge_bytes(data, start, end, tables, scratch, out, at)


@kernel(inline=True)
def encode_long(
    data: BytesIn,
    start: int,
    end: int,
    tables: PairTables,
    whole: WholeTokens,
    cache: EncodingCache,
    scratch: Scratch,
    out: UInt32,
    at: int,
) -> int:
    """Encode what the short cache has no place for; return how many ids were written."""
    length = end - start
    if length > MAX_CACHED:
        return encode_anew(data, start, end, tables, whole, scratch, out, at)
    digest = hash_long(data, start, end)
    count = recall_long(cache, digest, data, start, length, out, at)
    if count == 0:
        count = encode_anew(data, start, end, tables, whole, scratch, out, at)
        if count > INLINE_IDS or length > MAX_SHORT:
            remember_long(cache, digest, data, start, length, out, at, count)
    return count


@kernel
def encode_pretokens(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    kinds: Int64In,
    tables: PairTables,
    whole: WholeTokens,
    cache: EncodingCache,
    scratch: Scratch,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode the pre-tokens of segments.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_segments + 1,), the pre-tokens of each segment.
        kinds: shape (num_segments,), -1 for text, or the id that stands for the whole segment.
        tables: the merges.
        whole: tokens that are taken whole.
        cache: this thread's.
        scratch: working memory for the longest pre-token.
        out: room for one id a byte; receives the ids.
        out_offsets: shape (num_segments + 1,); receives where each segment's ids begin and end.

    Returns:
        The number of ids.
    """
    position, sets = np.int64(0), np.int64(cache.short.shape[0] - 2)
    out_offsets[0] = position
    for segment in range(kinds.shape[0]):
        if kinds[segment] >= 0:
            out[position] = kinds[segment]
            position += 1
        else:
            for k in range(offsets[segment], offsets[segment + 1]):
                start, end = starts[k], ends[k]
                if end - start <= MAX_SHORT:
                    low, high = load_short(data, start, end - start)
                    slot = np.int64(hash_short(low, high) >> _HALF) & sets
                    count = recall_short(cache.short, slot, low, high, out, position)
                    if count == 0:
                        count = encode_long(data, start, end, tables, whole, cache, scratch, out, position)
                        if count <= INLINE_IDS:
                            remember_short(cache.short, slot, low, high, out, position, count)
                else:
                    count = encode_long(data, start, end, tables, whole, cache, scratch, out, position)
                position += count
        out_offsets[segment + 1] = position
    return position
