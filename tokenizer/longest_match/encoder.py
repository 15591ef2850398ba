"""The encoder of longest match: a trie of the vocabulary, shared by all threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.laws import Accounting
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.tries import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.decoding import locate_tokens
from tokmill.tokenizer.kernels.token_trie import TokenTrie
from tokmill.tokenizer.longest_match.kernels.encoding import encode_longest
from tokmill.tokenizer.pipeline.model import Encoding, Law
from tokmill.tokenizer.splitting import Pretokens

_NO_UNKNOWN = -1


class LongestMatchEncoder:
    """Turns pre-tokens into ids; safe to share between threads, which write nothing of it.

    Attributes:
        law: what every encoding is checked against: the tokens are as long as the text.
    """

    def __init__(self, vocabulary: Vocabulary, byte_ids: NDArray[np.int32]) -> None:
        self.law: Law = Accounting(vocabulary.offsets, _NO_UNKNOWN)
        self._offsets = vocabulary.offsets
        longer = np.array([i for i, token in vocabulary.ordinary() if len(token) > 1], np.int64)
        self._trie, _ = lay_out_trie(vocabulary.data, vocabulary.offsets, longer, byte_ids)

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        yield Workspace(self._trie)

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
    """A vocabulary's trie; it needs no scratch."""

    def __init__(self, trie: TokenTrie) -> None:
        self._trie = trie

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments; see `pipeline.model.Workspace`."""
        raise_if_stopped()
        number = kinds.shape[0]
        room = int((pretokens.ends - pretokens.starts).sum()) + number
        ids, ends = np.empty(room, np.uint32), np.empty(number + 1, np.int64)
        given = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._trie
        return Encoding(ids[: encode_longest(*given, ids, ends)], ends)
