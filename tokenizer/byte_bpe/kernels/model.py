"""The tables that encoding reads, and the memory that it writes, bundled for the kernels."""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.characters import Characters
from tokmill.tokenizer.byte_bpe.kernels.greedy import GreedyScratch, TokenTable
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int64, Int64In
from tokmill.tokenizer.kernels.cache import EncodingCache, Fetched
from tokmill.tokenizer.kernels.merges import Scratch
from tokmill.tokenizer.kernels.pairs import PairTables
from tokmill.tokenizer.kernels.token_trie import TokenTrie
from tokmill.tokenizer.kernels.words import equal_bytes, hash_long

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


class Memory(NamedTuple):
    """Working memory of encoding, for one thread.

    Attributes:
        cache: see `kernels.cache`.
        greedy: for vocabularies that are ordered.
        merging: for those that are not.
        fetched: where a block of pre-tokens is in the cache.
    """

    cache: EncodingCache
    greedy: GreedyScratch
    merging: Scratch
    fetched: Fetched
