"""The encoder of BPE over characters: tables that threads share, and a workspace with a cache for each."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.char_bpe.kernels.encoding import (
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    Memory,
    encode_pretokens,
    locate_pieces,
)
from tokmill.tokenizer.char_bpe.kernels.merging import Pieces
from tokmill.tokenizer.closed_vocabulary.model import Accounting
from tokmill.tokenizer.components.specials import make_trie
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.kernels.cache import empty_block, empty_cache
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.kernels.pairs import PairTables, empty_tables, insert, insert_merges
from tokmill.tokenizer.pipeline.model import Encoding, Law
from tokmill.tokenizer.splitting import Pretokens

if TYPE_CHECKING:
    from tokmill.tokenizer.char_bpe.model import CharacterPairModel

_USUAL_BYTES = 1 << 12
_KEPT_BYTES = 1 << 21  # scratch for longer pre-tokens is freed after use
_MAX_BYTES = (1 << 31) - 2
_CACHE_BITS = 16, 14, 18
_BEHIND = 8  # ids that are written at a time, even if there are fewer
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


class CharacterPairEncoder:
    """Turns pre-tokens into ids; safe to share between threads.

    Attributes:
        law: the law that every encoding is checked against.
        pieces: the kernels' tables; only read.
    """

    def __init__(self, model: "CharacterPairModel") -> None:
        self.law: Law = Accounting(model.vocabulary.offsets, model.unknown_id)
        self.pieces = lay_out(model)
        self._free: list[Workspace] = []

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread; its cache is kept for the next one."""
        try:
            lent = self._free.pop()
        except IndexError:
            lent = Workspace(self.pieces)
        try:
            yield lent
        finally:
            self._free.append(lent)

    def locate(
        self,
        ids: NDArray[np.int64],
        data: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        kinds: NDArray[np.int64],
        split: Callable[[], Pretokens],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by encoding again; see `pipeline.model.Encoder`."""
        pretokens = split()
        if not ids.shape[0]:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ends = np.empty(ids.shape[0], np.int64)
        scratch = make_scratch(int((pretokens.ends - pretokens.starts).max(initial=1)))
        given = data, pretokens.starts, pretokens.ends, pretokens.offsets, bounds, kinds
        locate_pieces(*given, self.pieces, scratch, ends)
        return np.concatenate([bounds[:1], ends[:-1]]), ends


class Workspace:
    """An encoder's pieces, and working memory to encode with them; for one thread at a time."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._usual = pieces, make_scratch(_USUAL_BYTES)
        self._memory = Memory(empty_cache(*_CACHE_BITS), self._usual, empty_block())

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments; see `pipeline.model.Workspace`."""
        offsets, unknown = np.zeros(kinds.shape[0] + 1, np.int64), np.zeros(kinds.shape[0], np.int64)
        if not pretokens.starts.shape[0]:
            return Encoding(np.empty(0, np.uint32), offsets, unknown)
        most = int(pretokens.ends[-1] - pretokens.starts[0]) + kinds.shape[0] + _BEHIND
        ids, progress, lacking = np.empty(most, np.uint32), np.zeros(3, np.int64), PAUSED
        given = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._pieces
        while lacking != DONE:
            raise_if_stopped()
            until = int(pretokens.starts[progress[PRETOKEN]]) + SLICE_BYTES
            lacking = encode_pretokens(*given, self._memory, ids, offsets, unknown, progress, until)
            if lacking > 0:
                self._make_room(lacking)
        if self._memory.scratch.ids.shape[0] > _KEPT_BYTES:
            self._memory = self._memory._replace(scratch=self._usual)
        return Encoding(ids[: progress[NUM_IDS]], offsets, unknown)

    def _make_room(self, longest: int) -> None:
        """Enlarge the scratch for pre-tokens of some length, at least to twice its size."""
        if longest > _MAX_BYTES:
            raise TokenizerError(
                f"encode: a pre-token has {longest} bytes, but at most {_MAX_BYTES} can be encoded; "
                "cut the document, or use a split pattern that does"
            )
        length = max(longest, 2 * self._memory.scratch.ids.shape[0])
        self._memory = self._memory._replace(scratch=make_scratch(length))
