"""The encoder of a unigram model: tables that threads share, and a workspace with a cache for each."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.cache import empty_block, empty_cache
from tokmill.tokenizer.pipeline.base_model import Accounting
from tokmill.tokenizer.pipeline.model import Law, SegmentedText
from tokmill.tokenizer.pipeline.workspaces import (
    USUAL_BYTES,
    LendsWorkspaces,
    ResumableWorkspace,
)
from tokmill.tokenizer.unigram.kernels.encoding import (
    Memory,
    encode_pretokens,
    locate_pieces,
)
from tokmill.tokenizer.unigram.kernels.lattice import Pieces, make_paths
from tokmill.tokenizer.unigram.kernels.rounded import NUM_BITS, make_room, mark_neighbours

_CACHE_BITS = 16, 14, 18


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


class UnigramEncoder(LendsWorkspaces["Workspace"]):
    """Turns pre-tokens into ids; safe to share between threads."""

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
        super().__init__(lambda: Workspace(self.pieces, self.longest))

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by encoding again."""
        pretokens = text.split()
        if not pretokens.starts.shape[0]:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ends = np.empty(ids.shape[0], np.int64)
        paths = make_paths(int((pretokens.ends - pretokens.starts).max()), self.longest)
        arguments = (
            text.data,
            pretokens.starts,
            pretokens.ends,
            pretokens.offsets,
            text.bounds,
            text.kinds,
            self.pieces,
            paths,
        )
        locate_pieces(*arguments, np.empty(ids.shape[0], np.uint32), ends)
        return np.concatenate([pretokens.starts[:1], ends[:-1]]), ends


class Workspace(ResumableWorkspace):
    """An encoder's pieces, and working memory to encode with them."""

    kernel = encode_pretokens
    most_bytes = (1 << 31) - 2

    def __init__(self, pieces: Pieces, longest: int) -> None:
        self.model, self._longest = pieces, longest
        self._usual = make_paths(USUAL_BYTES, longest)
        self.memory = Memory(empty_cache(*_CACHE_BITS), self._usual, empty_block(), make_room())

    @property
    def scratch_bytes(self) -> int:
        """How many bytes of a pre-token the scratch is for."""
        return int(self.memory.paths.back.shape[0])

    def enlarge(self, length: int) -> None:
        """Make the scratch longer."""
        self.memory = self.memory._replace(paths=make_paths(length, self._longest))

    def shrink(self) -> None:
        """Put the usual scratch in place of a long one."""
        self.memory = self.memory._replace(paths=self._usual)
