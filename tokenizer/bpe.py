"""The encoder of a byte-level BPE definition: tables for the kernels, and a cache for each thread.

Tables are made once and only read afterwards. Every thread that encodes has a cache of its own, so threads
share nothing that is written and the kernels run without the GIL.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from tokenizer.definition import Definition
from tokenizer.errors import VocabularyError
from tokenizer.kernels.encoding import (
    EncodingCache,
    WholeTokens,
    empty_cache,
    encode_pretokens,
    index_whole_tokens,
)
from tokenizer.kernels.merges import Scratch, derive_merges, find_merged, make_scratch
from tokenizer.kernels.pairs import PairTables, empty_tables, insert_merges
from tokenizer.specials import Segments
from tokenizer.splitting import Pretokens

_USUAL_BYTES = 1 << 12


class BytePairEncoder:
    """Turns pre-tokens into ids."""

    def __init__(self, definition: Definition) -> None:
        self._tables = _pair_tables(definition)
        self._whole = _whole_tokens(definition, self._tables)
        self._own = threading.local()

    def encode(
        self, data: NDArray[np.uint8], pretokens: Pretokens, segments: Segments
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Encode the pre-tokens of segments.

        Args:
            data: uint8, the text.
            pretokens: of each segment of it.
            segments: text and special tokens.

        Returns:
            uint32 ids, and int64 offsets of shape (num_segments + 1,).
        """
        room = int(segments.bounds[-1] - segments.bounds[0])
        ids, offsets = np.empty(room, np.uint32), np.empty(segments.bounds.shape[0], np.int64)
        number = encode_pretokens(
            data,
            pretokens.starts,
            pretokens.ends,
            pretokens.offsets,
            segments.kinds,
            self._tables,
            self._whole,
            self._cache(),
            self._scratch(pretokens),
            ids,
            offsets,
        )
        return ids[:number], offsets

    def _cache(self) -> EncodingCache:
        if not hasattr(self._own, "cache"):
            self._own.cache = empty_cache()
        cache: EncodingCache = self._own.cache
        return cache

    def _scratch(self, pretokens: Pretokens) -> Scratch:
        """Return this thread's working memory, or more for once if a pre-token is long."""
        if not hasattr(self._own, "scratch"):
            self._own.scratch = make_scratch(_USUAL_BYTES)
        longest = int((pretokens.ends - pretokens.starts).max(initial=0))
        usual: Scratch = self._own.scratch
        return usual if longest <= _USUAL_BYTES else make_scratch(longest)


def _pair_tables(definition: Definition) -> PairTables:
    left, right, result = (np.ascontiguousarray(definition.merges[:, column]) for column in range(3))
    tables = empty_tables(definition.byte_ids, left.shape[0])
    byte_of = np.full(definition.vocab_size, -1, np.int32)
    byte_of[definition.byte_ids] = np.arange(256)
    clash = insert_merges(tables, byte_of, left, right, result)
    if clash >= 0:
        raise VocabularyError(
            f"vocabulary: merge {clash} joins a pair that an earlier merge joins; remove it"
        )
    return tables


def _whole_tokens(definition: Definition, tables: PairTables) -> WholeTokens:
    """Index the tokens that a pre-token of their bytes becomes.

    With `ignore_merges` these are all that are not special; otherwise those that merging leads to, which
    saves the merging.
    """
    slots = np.full(1 << (2 * definition.vocab_size).bit_length(), -1, np.int32)
    whole = WholeTokens(slots, definition.token_data, definition.token_offsets)
    ids = np.flatnonzero(np.diff(definition.token_offsets))
    ids = ids[~np.isin(ids, list(definition.special_tokens.values()))]
    if not definition.ignore_merges:
        merged = np.empty_like(ids)
        longest = int(np.diff(definition.token_offsets).max())
        out = np.empty(longest, np.uint32)
        number = find_merged(
            tables, whole.token_data, whole.token_offsets, ids, make_scratch(longest), out, merged
        )
        ids = merged[:number]
    index_whole_tokens(slots, definition.token_data, definition.token_offsets, ids)
    return whole


def merges_from_ranks(
    token_data: NDArray[np.uint8], token_offsets: NDArray[np.int64], special_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the merges of a vocabulary that only ranks byte strings by id, as tiktoken's files do.

    Args:
        token_data: uint8, the bytes of all tokens, by id.
        token_offsets: int64, shape (vocab_size + 1,).
        special_ids: ids that take no part.

    Returns:
        The merges as int64 rows of left, right and resulting id, in order of rank (which is the order of
        their results' ids); and the ids of tokens that merging does not lead to.

    Raises:
        VocabularyError: a byte is no token.
    """
    lengths = np.diff(token_offsets)
    lengths[special_ids] = 0
    byte_ids = np.full(256, -1, np.int32)
    singles = np.flatnonzero(lengths == 1)
    byte_ids[token_data[token_offsets[singles]]] = singles
    if (byte_ids < 0).any():
        raise VocabularyError(
            f"vocabulary: the byte {int(np.argmin(byte_ids)):#04x} is no token, but all 256 must be there"
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
