"""The encoder of a byte-level BPE definition: tables for the kernels, and a cache for each thread.

Tables are made once and only read afterwards. Every thread that encodes has a cache of its own, so threads
share nothing that is written and the kernels run without the GIL.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from tokenizer.definition import Definition
from tokenizer.errors import VocabularyError
from tokenizer.kernels.characters import CODE_POINTS, find_closed, find_floors, find_pieces
from tokenizer.kernels.encoding import WholeTokens, encode_pretokens, index_whole_tokens
from tokenizer.kernels.encoding_cache import EncodingCache, empty_cache
from tokenizer.kernels.merges import Scratch, derive_merges, make_scratch
from tokenizer.kernels.pairs import NO_MERGE, PairTables, empty_tables, insert_merges
from tokenizer.specials import Segments
from tokenizer.splitting import Pretokens

_USUAL_BYTES = 1 << 12


class BytePairEncoder:
    """Turns pre-tokens into ids."""

    def __init__(self, definition: Definition) -> None:
        self._own = threading.local()
        self._tables = _pair_tables(definition)
        self._whole = _whole_tokens(definition, np.zeros(0, np.int64))
        if definition.ignore_merges:
            self._whole = _whole_tokens(definition, self._unmerged(definition))
            del self._own.cache  # which has seen these tokens merged

    def _unmerged(self, definition: Definition) -> NDArray[np.int64]:
        """Return the tokens that merging their own bytes does not lead to, special tokens left out."""
        ids = np.flatnonzero(np.diff(definition.token_offsets))
        ids = ids[~np.isin(ids, list(definition.special_tokens.values()))]
        starts, ends = definition.token_offsets[ids], definition.token_offsets[ids + 1]
        each, kinds = np.arange(ids.shape[0] + 1), np.full(ids.shape[0], -1, np.int64)
        found, offsets = self._encode(definition.token_data, starts, ends, each, kinds)
        merged: NDArray[np.bool_] = (np.diff(offsets) == 1) & (found[offsets[:-1]] == ids)
        return ids[~merged]

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
        return self._encode(data, pretokens.starts, pretokens.ends, pretokens.offsets, segments.kinds)

    def _encode(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        offsets: NDArray[np.int64],
        kinds: NDArray[np.int64],
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        lengths = ends - starts
        ids = np.empty(int(lengths.sum()) + kinds.shape[0], np.uint32)
        ends_of = np.empty(kinds.shape[0] + 1, np.int64)
        number = encode_pretokens(
            data,
            starts,
            ends,
            offsets,
            kinds,
            self._tables,
            self._whole,
            self._cache(),
            self._scratch(int(lengths.max(initial=0))),
            ids,
            ends_of,
        )
        return ids[:number], ends_of

    def _cache(self) -> EncodingCache:
        if not hasattr(self._own, "cache"):
            self._own.cache = empty_cache()
        cache: EncodingCache = self._own.cache
        return cache

    def _scratch(self, longest: int) -> Scratch:
        """Return this thread's working memory, or more for once if a pre-token is long."""
        if not hasattr(self._own, "scratch"):
            self._own.scratch = make_scratch(_USUAL_BYTES)
        usual: Scratch = self._own.scratch
        return usual if longest <= _USUAL_BYTES else make_scratch(longest)


def _pair_tables(definition: Definition) -> PairTables:
    left, right, result = (np.ascontiguousarray(definition.merges[:, column]) for column in range(3))
    tables = empty_tables(definition.byte_ids, left.shape[0])
    clash = insert_merges(tables, left, right, result)
    if clash >= 0:
        raise VocabularyError(
            f"vocabulary: merge {clash} joins a pair that an earlier merge joins; remove it"
        )
    ranks, made_at = np.arange(left.shape[0]), np.full(definition.vocab_size, -1)
    made_at[result] = ranks
    if (made_at[left] >= ranks).any() or (made_at[right] >= ranks).any():
        return tables
    return _with_closed_characters(tables, definition, left, right)


def _with_closed_characters(
    tables: PairTables, definition: Definition, left: NDArray[np.int32], right: NDArray[np.int32]
) -> PairTables:
    """Add the closed characters; every merge must rank behind those that make its parts."""
    data, offsets = definition.token_data, definition.token_offsets
    pieces = np.full(definition.vocab_size, -1, np.int32)
    number = find_pieces(data, offsets, pieces)
    from_left, from_right = np.full((2, number, 64), NO_MERGE, np.uint32)
    find_floors(left, right, data, offsets, pieces, from_left, from_right)
    characters, closed = np.full(CODE_POINTS, -1, np.int32), np.zeros((CODE_POINTS, 3), np.uint64)
    scratch = np.zeros(8, np.int64)
    rows = find_closed(tables, pieces, from_left, from_right, scratch, characters, closed)
    return tables._replace(characters=characters, closed=closed[:rows].copy())


def _whole_tokens(definition: Definition, ids: NDArray[np.int64]) -> WholeTokens:
    """Index tokens that a pre-token of their bytes becomes without merging."""
    slots = np.full(1 << max((2 * ids.shape[0]).bit_length(), 4), -1, np.int32)
    index_whole_tokens(slots, definition.token_data, definition.token_offsets, ids)
    return WholeTokens(ids.shape[0], slots, definition.token_data, definition.token_offsets)


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
