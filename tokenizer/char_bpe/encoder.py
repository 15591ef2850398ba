"""The encoder of BPE over characters: tables that threads share, and a workspace with a cache for each."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.char_bpe.kernels.encoding import (
    Memory,
    encode_pretokens,
    locate_pieces,
)
from tokmill.tokenizer.char_bpe.kernels.merging import Pieces
from tokmill.tokenizer.components.specials import make_trie
from tokmill.tokenizer.kernels.cache import empty_block, empty_cache
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.kernels.pairs import PairTables, empty_tables, insert, insert_merges
from tokmill.tokenizer.pipeline.base_model import Accounting
from tokmill.tokenizer.pipeline.model import Law, SegmentedText
from tokmill.tokenizer.pipeline.workspaces import (
    USUAL_BYTES,
    LendsWorkspaces,
    ResumableWorkspace,
)

if TYPE_CHECKING:
    from tokmill.tokenizer.char_bpe.model import CharacterPairModel

_CACHE_BITS = 16, 14, 18
_POINTS = 0x110000


def lay_out(model: "CharacterPairModel") -> Pieces:
    """Make the kernels' tables of a model."""
    pieces = _lay_out_merges(model) if model.merges is not None else _lay_out_scores(model)
    return pieces._replace(fuse=model.fuse_unknown)


def _lay_out_merges(model: "CharacterPairModel") -> Pieces:
    merges = np.zeros((0, 2), np.int32) if model.merges is None else model.merges
    symbols = {token.decode(): i for i, token in _ordinary(model)}
    pairs = empty_tables(np.full(256, -1, np.int32), max(len(merges), 1))
    left, right = np.ascontiguousarray(merges[:, 0]), np.ascontiguousarray(merges[:, 1])
    insert_merges(pairs, left, right, model.results)
    return _pieces(model, symbols, pairs, np.arange(max(len(merges), 1), dtype=np.int32))


def _ordinary(model: "CharacterPairModel") -> list[tuple[int, bytes]]:
    """Return the pieces that characters are joined to."""
    without = model.vocabulary.byte_ids | set(model.frozen)
    return [(i, token) for i, token in model.vocabulary.ordinary() if i not in without]


def _lay_out_scores(model: "CharacterPairModel") -> Pieces:
    texts = {i: token.decode() for i, token in _ordinary(model)}
    symbols = {text: i for i, text in texts.items()}
    for text in texts.values():
        for character in text:
            symbols.setdefault(character, model.vocabulary.size + len(symbols))
    longer = sorted((i for i, text in texts.items() if len(text) > 1), key=lambda i: (-model.scores[i], i))
    merges = [
        (symbols[texts[i][:cut]], symbols[texts[i][cut:]], rank)
        for rank, i in enumerate(longer)
        for cut in range(1, len(texts[i]))
        if texts[i][:cut] in symbols and texts[i][cut:] in symbols
    ]
    # a piece may have no merge, so there can be more ranks than merges
    pairs = empty_tables(np.full(256, -1, np.int32), max(len(merges), len(longer), 1))
    for left, right, rank in merges:
        insert(pairs, left, right, rank, longer[rank])
    equal = itertools.pairwise(float(model.scores[i]) for i in longer)
    steps = np.array([0, *(first != second for first, second in equal)], np.int32)
    return _pieces(model, symbols, pairs, np.cumsum(steps, dtype=np.int32))


def _pieces(
    model: "CharacterPairModel", symbols: Mapping[str, int], pairs: PairTables, groups: NDArray[np.int32]
) -> Pieces:
    """Put the tables together, with what does not depend on how pairs are chosen."""
    vocabulary, points = model.vocabulary, np.full(_POINTS, -1, np.int32)
    for text, symbol in symbols.items():
        if len(text) == 1:
            points[ord(text)] = symbol
    by_byte = {vocabulary.tokens[i]: i for i in vocabulary.byte_ids}
    every = [bytes([byte]) for byte in range(256)] if by_byte else []
    standing_in = [by_byte.get(byte, vocabulary.ids.get(byte, -1)) for byte in every]
    return Pieces(
        points,
        make_trie(tuple((vocabulary.tokens[i].decode(), i) for i in model.frozen)),
        pairs,
        groups,
        np.array(standing_in, np.int32),
        model.unknown_id,
        vocabulary.size,
        fuse=True,
    )


class CharacterPairEncoder(LendsWorkspaces["Workspace"]):
    """Turns pre-tokens into ids; safe to share between threads."""

    def __init__(self, model: "CharacterPairModel") -> None:
        self.law: Law = Accounting(model.vocabulary.offsets, model.unknown_id)
        self.pieces = lay_out(model)
        super().__init__(lambda: Workspace(self.pieces))

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by encoding again."""
        pretokens = text.split()
        if not ids.shape[0]:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ends = np.empty(ids.shape[0], np.int64)
        scratch = make_scratch(int((pretokens.ends - pretokens.starts).max(initial=1)))
        arguments = text.data, pretokens.starts, pretokens.ends, pretokens.offsets, text.bounds, text.kinds
        locate_pieces(*arguments, self.pieces, scratch, ends)
        return np.concatenate([text.bounds[:1], ends[:-1]]), ends


class Workspace(ResumableWorkspace):
    """An encoder's pieces, and working memory to encode with them."""

    kernel = encode_pretokens
    most_bytes = (1 << 31) - 2

    def __init__(self, pieces: Pieces) -> None:
        self.model, self._usual = pieces, make_scratch(USUAL_BYTES)
        self.memory = Memory(empty_cache(*_CACHE_BITS), self._usual, empty_block())

    @property
    def scratch_bytes(self) -> int:
        """How many bytes of a pre-token the scratch is for."""
        return int(self.memory.scratch.ids.shape[0])

    def enlarge(self, length: int) -> None:
        """Make the scratch longer."""
        self.memory = self.memory._replace(scratch=make_scratch(length))

    def shrink(self) -> None:
        """Put the usual scratch in place of a long one."""
        self.memory = self.memory._replace(scratch=self._usual)
