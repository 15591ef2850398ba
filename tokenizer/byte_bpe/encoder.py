"""The encoder of byte-level BPE, its tables, which are only read, and merges that follow from ranks."""

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.kernels.greedy import (
    LEFT,
    PREFIX,
    RANK,
    RIGHT,
    Characters,
    TokenTable,
    empty_characters,
    encode_characters,
    make_greedy_scratch,
    note_joined,
)
from tokmill.tokenizer.byte_bpe.kernels.model import (
    Model,
    WholeTokens,
    Work,
    encode_pretokens,
    index_whole_tokens,
)
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.kernels.cache import (
    EncodingCache,
    copy_cache,
    empty_cache,
    remember_tokens,
)
from tokmill.tokenizer.kernels.encoding import Memory, make_memory
from tokmill.tokenizer.kernels.merges import derive_merges, find_last_merges, make_scratch
from tokmill.tokenizer.kernels.pair_tables import PairTables, empty_tables, tables_of
from tokmill.tokenizer.kernels.words import MAX_SHORT
from tokmill.tokenizer.pipeline.encoder import TilingEncoder

if TYPE_CHECKING:
    from tokmill.tokenizer.byte_bpe.model import BytePairModel

_CACHE_BITS = 18, 15, 20


def lay_out(bpe: "BytePairModel") -> Model:
    """Make the kernels' tables of a vocabulary."""
    left, right, _ = bpe.merges.T
    pairs, clash = tables_of(bpe.byte_ids, bpe.merges)
    if clash >= 0:
        raise VocabularyError(
            f"vocabulary: merge {clash} joins a pair that an earlier merge joins; remove it"
        )
    longer = _longer_tokens(bpe)
    ranks = _last_merges(bpe, pairs, longer)
    made = longer[ranks[longer] >= 0]
    facts = np.full((bpe.vocabulary.size, 4), -1, np.int32)
    facts[:, RANK] = ranks
    facts[made, LEFT], facts[made, RIGHT] = left[ranks[made]], right[ranks[made]]
    byte_ids = np.ascontiguousarray(bpe.byte_ids, np.int32)
    trie, facts[:, PREFIX] = lay_out_trie(bpe.vocabulary.data, bpe.vocabulary.offsets, made, byte_ids)
    ordered = bool((np.maximum(ranks[left], ranks[right]) < np.arange(left.shape[0])).all())
    others = longer[ranks[longer] < 0] if bpe.ignore_merges else longer[:0]
    table = TokenTable(facts, np.diff(bpe.vocabulary.offsets).astype(np.int32))
    characters = _characters(bpe, made)
    if ordered:
        room = np.zeros(3, np.uint8), np.zeros(3, np.uint32)
        encode_characters(pairs, trie, table, make_greedy_scratch(3), *room, characters.ids)
    return Model(pairs, trie, table, characters, _whole_tokens(bpe, others), ordered)


def first_cache(bpe: "BytePairModel", model: Model) -> EncodingCache:
    """Return a cache that contains the tokens themselves, since many pre-tokens are tokens."""
    lengths = np.diff(bpe.vocabulary.offsets)
    lengths[list(bpe.vocabulary.special_tokens.values())] = 0
    known = (model.table.facts[:, RANK] >= 0) | (lengths == 1) | bpe.ignore_merges
    tokens = np.flatnonzero(known & (lengths > 0))[: 1 << (_CACHE_BITS[0] - 1)][::-1]
    cache, room = empty_cache(*_CACHE_BITS), np.zeros(1, np.uint32)
    remember_tokens(cache, bpe.vocabulary.data, bpe.vocabulary.offsets, tokens.copy(), room)
    return cache


def _longer_tokens(bpe: "BytePairModel") -> NDArray[np.int64]:
    """Return the ids of tokens of two bytes or more, shortest first, special tokens left out."""
    lengths = np.diff(bpe.vocabulary.offsets)
    lengths[list(bpe.vocabulary.special_tokens.values())] = 0
    longer = np.flatnonzero(lengths > 1)
    return longer[np.argsort(lengths[longer], kind="stable")]


def _last_merges(bpe: "BytePairModel", pairs: PairTables, tokens: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the rank of the last merge in encoding each token's bytes; -1 if they do not give the token."""
    ranks = np.full(bpe.vocabulary.size, -1, np.int32)
    longest = int(np.diff(bpe.vocabulary.offsets).max())
    find_last_merges(
        pairs,
        bpe.vocabulary.data,
        bpe.vocabulary.offsets,
        tokens,
        ranks,
        make_scratch(longest),
        np.empty(longest, np.uint32),
    )
    return ranks


def _characters(bpe: "BytePairModel", tokens: NDArray[np.int64]) -> Characters:
    """Return the table of the characters that tokens join."""
    sized = empty_characters(0)
    pairs = note_joined(bpe.vocabulary.data, bpe.vocabulary.offsets, tokens, sized)
    characters = empty_characters(pairs)
    note_joined(bpe.vocabulary.data, bpe.vocabulary.offsets, tokens, characters)
    return characters


def _whole_tokens(bpe: "BytePairModel", ids: NDArray[np.int64]) -> WholeTokens:
    """Index the tokens that are the encoding of their bytes, but not by merging."""
    slots = np.full(1 << max((2 * ids.shape[0]).bit_length(), 4), -1, np.int32)
    index_whole_tokens(slots, bpe.vocabulary.data, bpe.vocabulary.offsets, ids)
    return WholeTokens(ids.shape[0], slots, bpe.vocabulary.data, bpe.vocabulary.offsets)


def merges_from_ranks(
    token_data: NDArray[np.uint8], token_offsets: NDArray[np.int64], special_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Derive merges from byte strings ranked by id, as tiktoken's files have them.

    Returns int64 rows of left, right and resulting id, in order of rank (that of their results' ids); and the
    ids of tokens that no merging gives.
    """
    lengths = np.diff(token_offsets)
    lengths[special_ids] = 0
    byte_ids = np.full(256, -1, np.int32)
    singles = np.flatnonzero(lengths == 1)
    byte_ids[token_data[token_offsets[singles]]] = singles
    if (byte_ids < 0).any():
        raise VocabularyError(
            f"vocabulary: the byte {int(np.argmin(byte_ids)):#04x} is not a token, but all 256 must be there"
        )
    longer = np.flatnonzero(lengths > 1)
    by_length = longer[np.argsort(lengths[longer], kind="stable")]
    rank_of = np.full(lengths.shape[0], -1, np.int32)
    rank_of[longer] = np.arange(longer.shape[0])
    parents = np.full(lengths.shape[0], -1, np.int64)
    tables = empty_tables(byte_ids, longer.shape[0])
    longest = int(lengths.max())
    scratch, out = make_scratch(longest), np.empty(longest, np.uint32)
    derive_merges(tables, token_data, token_offsets, by_length, rank_of, parents, scratch, out)
    made = longer[parents[longer] >= 0]
    merges = np.stack([parents[made] >> 32, parents[made] & 0xFFFFFFFF, made], axis=1)
    return merges, longer[parents[longer] < 0]


def make_encoder(bpe: "BytePairModel") -> TilingEncoder:
    """Make an encoder, whose threads begin with a copy of one cache."""
    model = bpe.tables

    def work(length: int) -> Work:
        few = make_scratch(MAX_SHORT if model.ordered else length)
        return Work(make_greedy_scratch(length), few)

    @cache
    def first() -> EncodingCache:
        return first_cache(bpe, model)

    def memory() -> Memory:
        return make_memory(copy_cache(first()))

    return TilingEncoder(encode_pretokens, model, bpe.vocabulary.offsets, make_scratch=work, memory=memory)
