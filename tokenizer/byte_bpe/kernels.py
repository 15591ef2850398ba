"""Encode a pre-token: cut it where no token reaches across, encode each part alone.

A few bytes are merged without a heap: rank and position of every pair are packed into one number, and the
least is found by a full scan; the starts and the ends of symbols are bits of two numbers. A merge makes two
new pairs, whose places in the pair table are prefetched together, before either is read.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.byte_bpe.greedy import (
    NO_CHARACTER,
    Characters,
    GreedyScratch,
    TokenTable,
    apart,
    character_at,
    encode_greedily,
)
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int32Table, Int64, Int64In, Int64Table, UInt32
from tokmill.tokenizer.jit.intrinsics import count_leading_zeros, count_trailing_zeros, prefetch
from tokmill.tokenizer.kernels.cache import EncodingCache, recall_short, remember_short, short_place
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel, sampling_kernel
from tokmill.tokenizer.kernels.merges import (
    Scratch,
    merge_bytes,
    merge_with_dropout,
    start_bytes,
    write_symbols,
)
from tokmill.tokenizer.kernels.pair_tables import (
    NO_MERGE,
    PairTables,
    fetch_pair,
    look_up_rank,
    may_merge,
    pair_key,
)
from tokmill.tokenizer.kernels.tries import TokenTrie
from tokmill.tokenizer.kernels.words import MAX_SHORT, equal_bytes, hash_long, load_short, narrow

MAX_SHORT_MERGE_BYTES = 16
"""Up to this length a scan of all pairs beats a heap and, without wide characters, `greedy`."""

_FEW_BITS = np.uint32(4)
_FEW_MASK = np.uint32(15)
_NOTHING = NO_MERGE << _FEW_BITS
_ONE, _TWO, _LAST_BIT = np.uint64(1), np.uint64(2), np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_BYTE_BITS = _EIGHT = np.uint64(8)


@kernel(inline=True)
def write_few(symbols: np.uint64, length: np.uint64, ids: Int32, out: UInt32, first: int) -> int:
    """Write the symbols that begin at the set bits of a number, except bit `length`; return their number."""
    place, at = np.uint64(first), np.uint64(0)
    while at < length:
        out[place] = ids[at]
        place += _ONE
        symbols &= symbols - _ONE
        at = count_trailing_zeros(symbols)
    return np.int64(place) - first


@kernel(inline=True)
def least_rank(ranks: UInt32, length: np.uint64) -> np.uint32:
    """Return the least rank, by a tree of comparisons, so that few of them wait for another."""
    first, second = min(ranks[0], ranks[1]), min(ranks[2], ranks[3])
    third, fourth = min(ranks[4], ranks[5]), min(ranks[6], ranks[7])
    first, second = min(first, second), min(third, fourth)
    if length > _EIGHT:
        third, fourth = min(ranks[8], ranks[9]), min(ranks[10], ranks[11])
        first, second = min(first, third), min(second, fourth)
        third, fourth = min(ranks[12], ranks[13]), min(ranks[14], ranks[15])
        first, second = min(first, third), min(second, fourth)
    return min(first, second)


@kernel(inline=True)
def start_few(data: BytesIn, start: int, length: int, tables: PairTables, ids: Int32, ranks: UInt32) -> None:
    """Set up one symbol per byte, and rank and position of every pair in one number."""
    for i in range(MAX_SHORT_MERGE_BYTES):
        ranks[i] = _NOTHING
    text = np.uint64(start)
    byte = np.uint64(data[text])
    ids[0] = tables.byte_ids[byte]
    for i in range(1, length):
        following = np.uint64(data[text + np.uint64(i)])
        ids[i] = tables.byte_ids[following]
        ranks[i - 1] = tables.byte_pairs[byte << _BYTE_BITS | following] << _FEW_BITS | np.uint32(i - 1)
        byte = following


@kernel(inline=True)
def note_rank(at: np.uint64, key: np.uint64, tables: PairTables, ranks: UInt32) -> None:
    """Store the rank of the pair at a position, and prefetch the result of its merge."""
    rank = look_up_rank(tables, key)
    prefetch(tables.results, np.int64(rank))
    ranks[at] = rank << _FEW_BITS | np.uint32(at)


@kernel(inline=True)
def merge_short(
    data: BytesIn, start: int, end: int, tables: PairTables, scratch: Scratch, out: UInt32, first: int
) -> int:
    """Encode up to MAX_SHORT_MERGE_BYTES into `out` from `first` on; return the number of ids."""
    ids, ranks, length = scratch.ids, scratch.ranks, np.uint64(end - start)
    start_few(data, start, end - start, tables, ids, ranks)
    symbols = (_TWO << length) - _ONE
    while True:
        least = least_rank(ranks, length)
        if least >= _NOTHING:
            return write_few(symbols, length, ids, out, first)
        at = np.uint64(least & _FEW_MASK)
        joined = tables.results[np.uint64(least >> _FEW_BITS)]
        ids[at] = joined
        behind = symbols & (_ALL << at << _ONE)
        gone = count_trailing_zeros(behind)
        after = count_trailing_zeros(behind & (behind - _ONE))
        symbols ^= _ONE << gone
        before = _LAST_BIT - count_leading_zeros(symbols & ((_ONE << at) - _ONE) | _ONE)
        to_next, to_this = pair_key(joined, ids[after]), pair_key(ids[before], joined)
        next_known = after < length and may_merge(tables, to_next)
        this_known = at > 0 and may_merge(tables, to_this)
        fetch_pair(tables, to_next, next_known)
        fetch_pair(tables, to_this, this_known)
        ranks[gone], ranks[at] = _NOTHING, _NOTHING
        ranks[before] = _NOTHING
        if next_known:
            note_rank(at, to_next, tables, ranks)
        if this_known:
            note_rank(before, to_this, tables, ranks)


_HALF = np.uint64(32)


class WholeTokens(NamedTuple):
    """Tokens that no merging gives, but that a pre-token of exactly their bytes is encoded as.

    Attributes:
        size: their number.
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


class Model(NamedTuple):
    """A vocabulary's tables for encoding; only read.

    Attributes:
        pairs: the merges.
        trie: the tokens that merging gives.
        table: their parts.
        characters: which characters are apart, and their ids.
        whole: other tokens, which are taken whole.
        ordered: whether every merge has a higher rank than the merges that make its parts, as `greedy` needs.
    """

    pairs: PairTables
    trie: TokenTrie
    table: TokenTable
    characters: Characters
    whole: WholeTokens
    ordered: bool


class Work(NamedTuple):
    """Working memory for one pre-token.

    Attributes:
        greedy: for vocabularies that are ordered.
        merging: for those that are not, and for a few bytes.
    """

    greedy: GreedyScratch
    merging: Scratch


_PART = np.uint64(1 << 60)
"""Set in the key of a part, since a pre-token of the same bytes may be encoded as one token."""


@kernel(inline=True)
def write_character(code: int, ids: Int32Table, out: UInt32, at: int) -> int:
    """Write the ids of one character into `out`, with room for three; return their number."""
    out[at], out[at + 1], out[at + 2] = ids[code, 1], ids[code, 2], ids[code, 3]
    return np.int64(ids[code, 0])


@kernel(inline=True)
def encode_part(
    data: BytesIn,
    start: int,
    end: int,
    known: bool,
    model: Model,
    work: Work,
    cache: EncodingCache,
    out: UInt32,
    at: int,
) -> int:
    """Encode a part; return the number of ids written."""
    low, high, place, count = np.uint64(0), np.uint64(0), np.int64(0), np.int64(0)
    if known:
        low, high = load_short(data, start, end - start)
        high |= _PART
        place = short_place(cache, low, high)
        count = recall_short(cache, place, low, high, out, at)
    if count == 0:
        count = encode_greedily(data, start, end, model.pairs, model.trie, model.table, work.greedy, out, at)
        if known:
            remember_short(cache, place, low, high, out, at, count)
    return count


@kernel(inline=True)
def encode_in_parts(
    data: BytesIn, start: int, end: int, model: Model, work: Work, cache: EncodingCache, out: UInt32, at: int
) -> int:
    """Encode a pre-token, cut between characters that are apart; return the number of ids written."""
    count, part, here = np.int64(0), start, start
    code, code_at, before = np.int64(NO_CHARACTER), start, np.int64(NO_CHARACTER)
    while part < end:
        size = np.int64(0)
        before, before_at = code, code_at
        if here < end:
            code, size = character_at(data, here, end)
            code_at = here
        if here == end or (before >= 0 and code >= 0 and apart(before, code, model.characters)):
            if before >= 0 and before_at == part:
                count += write_character(before, model.characters.ids, out, at + count)
            else:
                known = here - part <= MAX_SHORT and here - part < end - start
                count += encode_part(data, part, here, known, model, work, cache, out, at + count)
            part = here
        here += size
    return count


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, model: Model, work: Work, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a pre-token; see `kernels.encoding`. No bytes are unknown."""
    if model.whole.size > 0:
        token = whole_token(data, start, end, model.whole)
        if token >= 0:
            out[at] = token
            return np.int64(1), np.int64(0)
    if not model.ordered:
        count, _ = merge_bytes(data, start, end, model.pairs, work.merging, out, at)
    elif end - start <= MAX_SHORT and narrow(*load_short(data, start, end - start)):
        count = merge_short(data, start, end, model.pairs, work.merging, out, at)
    else:
        count = encode_in_parts(data, start, end, model, work, memory.cache, out, at)
    return count, np.int64(0)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    model: Model,
    scratch: Scratch,
    spans: Int64Table,
    dropout: float,
    state: np.uint64,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Encode a pre-token with dropout; tokens that merging does not give need a dropout of 0."""
    if dropout == 0.0 and model.whole.size > 0:
        token = whole_token(data, start, end, model.whole)
        if token >= 0:
            out[at] = token
            return np.int64(1), np.int64(0)
    start_bytes(data, start, end - start, model.pairs, scratch)
    merge_with_dropout(end - start, model.pairs, scratch, dropout, state)
    return write_symbols(end - start, scratch, out, at), np.int64(0)


encode_pretokens = encoding_kernel(encode_one, Model, Work)
sample_pretokens = sampling_kernel(draw_one, Model, Scratch)
