"""The encoder of a byte-level BPE model: a workspace per thread, and the law that its encodings keep.

The kernels' tables are made once (`tables`) and only read afterwards. A thread borrows a
workspace, which holds everything that is written; so threads share only tables, and the kernels run without
the GIL.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.kernels.encoding import (
    DONE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    encode_pretokens,
    first_gap,
    first_gap_of_long_tokens,
)
from tokmill.tokenizer.byte_bpe.kernels.greedy import make_greedy_scratch
from tokmill.tokenizer.byte_bpe.kernels.model import Memory, Model
from tokmill.tokenizer.byte_bpe.tables import first_cache
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.kernels.cache import EncodingCache, copy_cache, empty_block
from tokmill.tokenizer.kernels.decoding import locate_tokens
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.pipeline.model import Breach, Encoding, Law
from tokmill.tokenizer.splitting import Pretokens

if TYPE_CHECKING:
    from tokmill.tokenizer.byte_bpe.model import BytePairModel

_USUAL_BYTES = 1 << 12
_KEPT_BYTES = 1 << 21  # scratch for longer pre-tokens is freed after use
_MAX_BYTES = (1 << 31) - 1
_USUAL_IDS = 1 << 19
_SHORT_TOKEN = 255  # bytes; their lengths fit in single bytes
_BEHIND = 8  # ids that are written at a time, even if there are fewer


class BytePairEncoder:
    """Turns pre-tokens into ids.

    Attributes:
        law: the law that every encoding is checked against.
    """

    def __init__(self, bpe: "BytePairModel") -> None:
        self.law: Law = Tiling(bpe.vocabulary.offsets)
        self._model = bpe.tables
        self._cache = first_cache(bpe, self._model)
        self._free: list[Workspace] = []
        self._offsets = bpe.vocabulary.offsets

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread; its cache is kept for the next one."""
        try:
            lent = self._free.pop()
        except IndexError:
            lent = Workspace(self._model, copy_cache(self._cache))
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
        """Return where each token begins and ends, by their lengths alone; see `pipeline.model.Encoder`."""
        starts, ends = np.empty_like(ids), np.empty_like(ids)
        locate_tokens(ids, self._offsets, bounds, kinds, starts, ends)
        return starts, ends


class Workspace:
    """An encoder's model, and working memory to encode with it; for one thread at a time."""

    def __init__(self, model: Model, cache: EncodingCache) -> None:
        self._model = model
        self._usual = make_greedy_scratch(_USUAL_BYTES), make_scratch(_USUAL_BYTES)
        self._memory = Memory(cache, *self._usual, empty_block())
        self._ids = np.empty(_USUAL_IDS, np.uint32)

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments; see `pipeline.model.Workspace`."""
        offsets = np.zeros(kinds.shape[0] + 1, np.int64)
        if not pretokens.starts.shape[0]:
            return Encoding(self._ids[:0], offsets)
        most = int(pretokens.ends[-1] - pretokens.starts[0]) + kinds.shape[0] + _BEHIND
        ids = self._ids if most <= _USUAL_IDS else np.empty(most, np.uint32)
        given = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._model
        progress, lacking = np.zeros(3, np.int64), PAUSED
        while lacking != DONE:
            raise_if_stopped()
            until = int(pretokens.starts[progress[PRETOKEN]]) + SLICE_BYTES
            lacking = encode_pretokens(*given, self._memory, ids, offsets, progress, until)
            if lacking > 0:
                self._make_room(lacking)
        if self._memory.greedy.given_up.shape[0] > _KEPT_BYTES:
            self._memory = self._memory._replace(greedy=self._usual[0], merging=self._usual[1])
        return Encoding(ids[: progress[NUM_IDS]], offsets)

    def _make_room(self, longest: int) -> None:
        """Enlarge the scratch for pre-tokens of some length, at least to twice its size."""
        if longest > _MAX_BYTES:
            raise TokenizerError(
                f"encode: a pre-token has {longest} bytes, but at most {_MAX_BYTES} can be encoded; "
                "cut the document, or use a split pattern that does"
            )
        length = max(longest, 2 * self._memory.greedy.given_up.shape[0])
        greedy = self._memory.greedy._replace(given_up=np.zeros(length + 1, np.int64))
        merging = self._memory.merging if self._model.ordered else make_scratch(length)
        self._memory = self._memory._replace(greedy=greedy, merging=merging)


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
        """See `pipeline.model.Law`; no text is unknown here, so `unknown_bytes` is ignored."""
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
