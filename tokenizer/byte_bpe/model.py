"""The model of byte-level BPE: a vocabulary that has every byte, and merges in the order of their ranks.

Laws: every byte is a token; a merge joins two tokens into the token of their joined bytes; no pair has two
    merges. With `ignore_merges` (as Hugging Face calls it; tiktoken always does so) a pre-token that is a
    token is that token, even if merging would not lead to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.greedy import (
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
from tokmill.tokenizer.byte_bpe.kernels import (
    Model,
    WholeTokens,
    Work,
    encode_pretokens,
    index_whole_tokens,
)
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.text import to_byte_pairs
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.cache import (
    EncodingCache,
    copy_cache,
    empty_cache,
    remember_tokens,
)
from tokmill.tokenizer.kernels.encoding import Memory, make_memory
from tokmill.tokenizer.kernels.merges import derive_merges, find_last_merges, make_scratch
from tokmill.tokenizer.kernels.pair_tables import MAX_IDS, PairTables, empty_tables, tables_of
from tokmill.tokenizer.kernels.words import MAX_SHORT
from tokmill.tokenizer.pipeline.base_model import MergeModel, check_bytes
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import TilingEncoder

NAME = "byte_bpe"

Merges: TypeAlias = Sequence[tuple[bytes, bytes]] | NDArray[np.signedinteger]
"""Pairs of byte strings or of ids, or rows of ids: left, right and resulting one."""


@dataclass(frozen=True, eq=False)
class BytePairModel(MergeModel):
    """A byte-level BPE model.

    Attributes:
        vocabulary: the bytes of every id.
        merges: int32, shape (num_merges, 3): left id, right id, resulting id; in order of rank.
        ignore_merges: whether a pre-token that is a token is taken whole.

    Raises:
        VocabularyError: a byte is not a token, or there are too many ids or merges.
    """

    ignore_merges: bool = False

    family = NAME

    def __post_init__(self) -> None:
        if not isinstance(self.ignore_merges, bool):
            raise VocabularyError(
                f"vocabulary: ignore_merges={self.ignore_merges!r:.80} must be true or false"
            )
        self.check_size(MAX_IDS)
        check_bytes(self.byte_ids, "a byte-level vocabulary must hold them all")

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        merges: Merges,
        *,
        ignore_merges: bool = False,
    ) -> Self:
        """Build a model from merges."""
        if not isinstance(merges, np.ndarray):
            return cls(vocabulary, cls.rows(vocabulary.ids, merges), ignore_merges)
        rows = _rows_of(vocabulary, merges) if merges.shape[1:] == (2,) else merges.astype(np.int32)
        return cls(vocabulary, rows, ignore_merges)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from the result of `spec`."""
        return cls(vocabulary, _rows_of(vocabulary, np.array(spec["merges"])), spec["ignore_merges"])

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        singles = np.flatnonzero(self.vocabulary.lengths == 1)
        ids = np.full(256, -1, np.int32)
        ids[self.vocabulary.data[self.vocabulary.offsets[singles]]] = singles
        return ids

    def spec(self) -> dict[str, Any]:
        """Return the merges, and whether they are ignored for whole tokens."""
        return {"ignore_merges": self.ignore_merges, "merges": self.merges[:, :2].tolist()}

    @cached_property
    def tables(self) -> Model:
        """The tables for the kernels that encode; made once, and only read."""
        return lay_out(self)

    def encoder(self) -> TilingEncoder:
        """Return the encoder, which is made once."""
        return self._encoder

    @cached_property
    def _encoder(self) -> TilingEncoder:
        return make_encoder(self)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "byte" if len(token) == 1 else "merge"


def read_merges(pairs: Sequence[tuple[str, str]], texts: Mapping[int, str], where: str = "token") -> Merges:
    """Read merges in the byte alphabet: pairs of ids if they join tokens of these texts, or byte strings."""
    ids = {text: token for token, text in texts.items()}
    try:
        return np.array([[*map(ids.__getitem__, side)] for side in zip(*pairs, strict=True)]).T.reshape(-1, 2)
    except KeyError:
        return to_byte_pairs(pairs, where)


def _rows_of(vocabulary: Vocabulary, pairs: NDArray[np.signedinteger]) -> NDArray[np.int32]:
    """Turn pairs of ids into rows; merges mostly make all longer tokens, in order of their ids."""
    lengths = vocabulary.lengths
    made, known = np.flatnonzero(lengths > 1), np.flatnonzero(lengths)
    if pairs.shape == (len(made), 2) and pairs.dtype.kind == "i" and np.isin(pairs, known).all():
        as_long = np.array_equal(lengths[pairs].sum(axis=1), lengths[made])
        if as_long and np.array_equal(vocabulary.joined(pairs), vocabulary.joined(made)):
            return np.column_stack([pairs, made]).astype(np.int32)
    tokens = {i: token for i, token in enumerate(vocabulary.tokens) if token}
    return MergeModel.rows(vocabulary.ids, [(tokens[left], tokens[right]) for left, right in pairs.tolist()])


def model_of(definition: Definition) -> BytePairModel:
    """Return the model of a definition that is known to be of this family."""
    return cast(BytePairModel, definition.model)


def define(
    tokens: Mapping[int, bytes],
    merges: Merges,
    special_tokens: Mapping[str, int],
    *,
    num_reserved: int = 0,
    ignore_merges: bool = False,
    **how: Any,
) -> Definition:
    """Define a byte-level BPE tokenizer."""
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    for name, token in special_tokens.items():
        other = vocabulary.ids[name.encode()]
        if other != token:
            raise VocabularyError(
                f"vocabulary: {name.encode()!r} is a token under two ids (one is {other}); remove one of them"
            )
    model = BytePairModel.build(vocabulary, merges, ignore_merges=ignore_merges)
    return Definition.compose(model, **how)


_CACHE_BITS = 18, 15, 20


def lay_out(bpe: BytePairModel) -> Model:
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


def first_cache(vocabulary: Vocabulary, model: Model, ignore_merges: bool) -> EncodingCache:
    """Return a cache that contains the tokens themselves, since many pre-tokens are tokens."""
    lengths = vocabulary.lengths
    known = (model.table.facts[:, RANK] >= 0) | (lengths == 1) | ignore_merges
    tokens = np.flatnonzero(known & (lengths > 0))[: 1 << (_CACHE_BITS[0] - 1)][::-1]
    cache, room = empty_cache(*_CACHE_BITS), np.zeros(1, np.uint32)
    remember_tokens(cache, vocabulary.data, vocabulary.offsets, tokens.copy(), room)
    return cache


def _longer_tokens(bpe: BytePairModel) -> NDArray[np.int64]:
    """Return the ids of tokens of two bytes or more, shortest first, special tokens left out."""
    lengths = bpe.vocabulary.lengths
    longer = np.flatnonzero(lengths > 1)
    return longer[np.argsort(lengths[longer], kind="stable")]


def _last_merges(bpe: BytePairModel, pairs: PairTables, tokens: NDArray[np.int64]) -> NDArray[np.int32]:
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


def _characters(bpe: BytePairModel, tokens: NDArray[np.int64]) -> Characters:
    """Return the table of the characters that tokens join."""
    sized = empty_characters(0)
    pairs = note_joined(bpe.vocabulary.data, bpe.vocabulary.offsets, tokens, sized)
    characters = empty_characters(pairs)
    note_joined(bpe.vocabulary.data, bpe.vocabulary.offsets, tokens, characters)
    return characters


def _whole_tokens(bpe: BytePairModel, ids: NDArray[np.int64]) -> WholeTokens:
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


def make_encoder(bpe: BytePairModel) -> TilingEncoder:
    """Make an encoder, whose threads begin with a copy of one cache."""
    model, vocabulary, ignore_merges = bpe.tables, bpe.vocabulary, bpe.ignore_merges

    def work(length: int) -> Work:
        few = make_scratch(MAX_SHORT if model.ordered else length)
        return Work(make_greedy_scratch(length), few)

    @cache
    def first() -> EncodingCache:
        return first_cache(vocabulary, model, ignore_merges)

    def memory() -> Memory:
        return make_memory(copy_cache(first()))

    return TilingEncoder(encode_pretokens, model, vocabulary.offsets, make_scratch=work, memory=memory)
