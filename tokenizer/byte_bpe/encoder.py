"""The encoder of a byte-level BPE model: a workspace per thread, and the law that its encodings keep.

The kernels' tables are made once and only read afterwards. A thread borrows a workspace, which holds
everything that is written; so threads share only tables, and the kernels run without the GIL.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.kernels.encoding import (
    encode_pretokens,
    first_gap,
    first_gap_of_long_tokens,
)
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
from tokmill.tokenizer.byte_bpe.kernels.model import Memory, Model, WholeTokens, index_whole_tokens
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.kernels.cache import (
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    EncodingCache,
    copy_cache,
    empty_block,
    empty_cache,
    remember_tokens,
)
from tokmill.tokenizer.kernels.lookup import locate_tokens
from tokmill.tokenizer.kernels.merges import (
    PairTables,
    derive_merges,
    empty_tables,
    find_last_merges,
    insert_merges,
    make_scratch,
)
from tokmill.tokenizer.pipeline.base_model import (
    BEHIND,
    KEPT_BYTES,
    USUAL_BYTES,
    LendsWorkspaces,
    refuse_longer,
)
from tokmill.tokenizer.pipeline.model import Breach, Encoding, Law, SegmentedText
from tokmill.tokenizer.splitting import Pretokens

if TYPE_CHECKING:
    from tokmill.tokenizer.byte_bpe.model import BytePairModel

_CACHE_BITS = 18, 15, 20


def lay_out(bpe: "BytePairModel") -> Model:
    """Make the kernels' tables of a vocabulary."""
    left, right, result = (np.ascontiguousarray(bpe.merges[:, column]) for column in range(3))
    pairs = empty_tables(bpe.byte_ids, left.shape[0])
    clash = insert_merges(pairs, left, right, result)
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


MAX_BYTES = (1 << 31) - 1
_USUAL_IDS = 1 << 19
_SHORT_TOKEN = 255  # bytes; their lengths fit in single bytes


class BytePairEncoder(LendsWorkspaces["Workspace"]):
    """Turns pre-tokens into ids."""

    def __init__(self, bpe: "BytePairModel") -> None:
        self.law: Law = Tiling(bpe.vocabulary.offsets)
        cache = first_cache(bpe, bpe.tables)
        super().__init__(lambda: Workspace(bpe.tables, copy_cache(cache)))
        self._offsets = bpe.vocabulary.offsets

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by their lengths alone."""
        starts, ends = np.empty_like(ids), np.empty_like(ids)
        locate_tokens(ids, self._offsets, text.bounds, text.kinds, starts, ends)
        return starts, ends


class Workspace:
    """An encoder's model, and working memory to encode with it; for one thread at a time."""

    def __init__(self, model: Model, cache: EncodingCache) -> None:
        self._model = model
        self._usual = make_greedy_scratch(USUAL_BYTES), make_scratch(USUAL_BYTES)
        self.memory = Memory(cache, *self._usual, empty_block())
        self._ids = np.empty(_USUAL_IDS, np.uint32)

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        offsets = np.zeros(kinds.shape[0] + 1, np.int64)
        if not pretokens.starts.shape[0]:
            return Encoding(self._ids[:0], offsets)
        most = int(pretokens.ends[-1] - pretokens.starts[0]) + kinds.shape[0] + BEHIND
        ids = self._ids if most <= _USUAL_IDS else np.empty(most, np.uint32)
        arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._model
        progress, lacking = np.zeros(3, np.int64), PAUSED
        while lacking != DONE:
            raise_if_stopped()
            until = int(pretokens.starts[progress[PRETOKEN]]) + SLICE_BYTES
            lacking = encode_pretokens(*arguments, self.memory, ids, offsets, progress, until)
            if lacking > 0:
                self._make_room(lacking)
        if self.memory.greedy.given_up.shape[0] > KEPT_BYTES:
            self.memory = self.memory._replace(greedy=self._usual[0], merging=self._usual[1])
        return Encoding(ids[: progress[NUM_IDS]], offsets)

    def _make_room(self, longest: int) -> None:
        """Enlarge the scratch for pre-tokens of some length, at least to twice its size."""
        refuse_longer(longest, MAX_BYTES)
        length = max(longest, 2 * self.memory.greedy.given_up.shape[0])
        greedy = self.memory.greedy._replace(given_up=np.zeros(length + 1, np.int64))
        merging = self.memory.merging if self._model.ordered else make_scratch(length)
        self.memory = self.memory._replace(greedy=greedy, merging=merging)


class Tiling:
    """The law of byte-level vocabularies: the tokens of a text together have as many bytes as the text.

    Ids are below `vocab_size`, and the numbers of ids are not negative. A special token is as long as its
    name, as it occurs in the text.
    """

    def __init__(self, token_offsets: NDArray[np.int64]) -> None:
        """Take the bounds of the tokens' bytes: int64, shape (vocab_size + 1,)."""
        lengths = np.diff(token_offsets)
        self._long = bool((lengths > _SHORT_TOKEN).any())
        self._lengths = lengths.astype(np.int32 if self._long else np.uint8)

    def breach(
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """Find where an encoding breaks the law; no text is unknown here, so `unknown_bytes` is ignored."""
        find = first_gap_of_long_tokens if self._long else first_gap
        segment, vocab_size = find(ids, ends, bounds, self._lengths), self._lengths.shape[0]
        if segment == ends.shape[0] - 1:
            return None if ends[-1] == ids.shape[0] else Breach(segment - 1, "it has ids that belong nowhere")
        first, after = int(ends[segment]), int(ends[segment + 1])
        if not 0 <= first <= after <= ids.shape[0]:
            return Breach(segment, f"its ids go from {first} to {after} of {ids.shape[0]}")
        found = ids[first:after]
        wrong = found[found >= vocab_size]
        if wrong.shape[0]:
            return Breach(segment, f"it has the id {wrong[0]}, but ids are below {vocab_size}")
        size, total = (
            int(bounds[segment + 1] - bounds[segment]),
            int(self._lengths[found].sum(dtype=np.int64)),
        )
        return Breach(segment, f"its {found.shape[0]} tokens have {total} bytes, but its text has {size}")
