"""The encoder of a unigram model: tables that threads share, and a workspace with a cache for each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.model import Accounting
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.core.tries import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.cache import empty_block, empty_cache
from tokmill.tokenizer.pipeline.model import Encoding, Law
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.unigram.kernels.encoding import (
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    Memory,
    encode_pretokens,
    locate_pieces,
)
from tokmill.tokenizer.unigram.kernels.lattice import Pieces, make_paths
from tokmill.tokenizer.unigram.kernels.rounded import NUM_BITS, make_room, mark_neighbours

_USUAL_BYTES = 1 << 12
_KEPT_BYTES = 1 << 21  # scratch for longer pre-tokens is freed after use
_MAX_BYTES = (1 << 31) - 2
_CACHE_BITS = 16, 14, 18
_BEHIND = 8  # ids that are written at a time, even if there are fewer


def lay_out(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    pieces: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> Pieces:
    """Make the kernels' tables of pieces; no id is the unknown token's."""
    lengths = np.diff(offsets)
    byte_ids = np.full(256, -1, np.int32)
    single = pieces[lengths[pieces] == 1]
    byte_ids[data[offsets[single]]] = single
    trie, _ = lay_out_trie(data, offsets, pieces[lengths[pieces] > 1], byte_ids)
    return Pieces(trie, scores, -1, np.empty(0, np.int32), False, np.zeros(0, np.uint64), 0.0)


class UnigramEncoder:
    """Turns pre-tokens into ids; safe to share between threads.

    Attributes:
        law: the law that every encoding is checked against.
        pieces: the tables of the vocabulary, for kernels.
        longest: bytes of the longest piece.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        scores: NDArray[np.float64],
        unknown_id: int,
        unknown_score: float,
        *,
        single: bool = False,
    ) -> None:
        self.law: Law = Accounting(vocabulary.offsets, unknown_id)
        standing_in = vocabulary.byte_ids
        ordinary = np.array([i for i, _ in vocabulary.ordinary() if i not in standing_in], np.int64)
        costs = scores.copy()
        costs[unknown_id] = unknown_score
        pieces = lay_out(vocabulary.data, vocabulary.offsets, ordinary, costs)
        byte_ids = np.array(sorted(standing_in, key=vocabulary.tokens.__getitem__), np.int32)
        self.pieces = pieces._replace(unknown=unknown_id, byte_ids=byte_ids, single=single)
        if single:
            neighbours = np.zeros(NUM_BITS // 64, np.uint64)
            mark_neighbours(vocabulary.data, vocabulary.offsets, ordinary, neighbours)
            worst = float(np.abs(costs[[*ordinary, unknown_id]]).max())
            self.pieces = self.pieces._replace(neighbours=neighbours, worst=worst)
        self.longest = int(np.diff(vocabulary.offsets)[ordinary].max())
        self._free: list[Workspace] = []

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread; its cache is kept for the next one."""
        try:
            lent = self._free.pop()
        except IndexError:
            lent = Workspace(self.pieces, self.longest)
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
        if not pretokens.starts.shape[0]:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ends = np.empty(ids.shape[0], np.int64)
        paths = make_paths(int((pretokens.ends - pretokens.starts).max()), self.longest)
        given = data, pretokens.starts, pretokens.ends, pretokens.offsets, bounds, kinds, self.pieces, paths
        locate_pieces(*given, np.empty(ids.shape[0], np.uint32), ends)
        return np.concatenate([pretokens.starts[:1], ends[:-1]]), ends


class Workspace:
    """An encoder's pieces, and working memory to encode with them; for one thread at a time."""

    def __init__(self, pieces: Pieces, longest: int) -> None:
        self._pieces, self._longest = pieces, longest
        self._usual = make_paths(_USUAL_BYTES, longest)
        self._memory = Memory(empty_cache(*_CACHE_BITS), self._usual, empty_block(), make_room())

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
        if self._memory.paths.back.shape[0] > _KEPT_BYTES:
            self._memory = self._memory._replace(paths=self._usual)
        return Encoding(ids[: progress[NUM_IDS]], offsets, unknown)

    def _make_room(self, longest: int) -> None:
        """Enlarge the scratch for pre-tokens of some length, at least to twice its size."""
        if longest > _MAX_BYTES:
            raise TokenizerError(
                f"encode: a pre-token has {longest} bytes, but at most {_MAX_BYTES} can be encoded; "
                "cut the document, or use a split pattern that does"
            )
        length = max(longest, 2 * self._memory.paths.back.shape[0])
        self._memory = self._memory._replace(paths=make_paths(length, self._longest))
