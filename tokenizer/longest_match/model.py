"""Longest match: a pre-token becomes the longest token that it begins with, and so on after it.

Laws: every byte is a token, so every text has ids; a pre-token's ids do not depend on its neighbours; the
    tokens' bytes, put together, are the normalized text, and nothing is lost. No other token of the
    vocabulary that fits at a place is longer than the one that is taken there, so a slice of an encoding
    from its beginning encodes its own text, unless a longer token goes on beyond it.

Source: BlinkDL/ChatRWKV `rwkv_tokenizer.py`, whose text is one pre-token.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.lookup import locate_tokens
from tokmill.tokenizer.kernels.tries import TokenTrie, encode_longest
from tokmill.tokenizer.pipeline.base_model import Accounting, BaseModel, check_bytes, check_size
from tokmill.tokenizer.pipeline.model import Encoding, Law, SegmentedText
from tokmill.tokenizer.splitting import Pretokens

_NO_UNKNOWN = -1


class LongestMatchEncoder:
    """Turns pre-tokens into ids; safe to share between threads, which write nothing of it."""

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
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by their lengths alone."""
        starts, ends = np.empty_like(ids), np.empty_like(ids)
        locate_tokens(ids, self._offsets, text.bounds, text.kinds, starts, ends)
        return starts, ends


class Workspace:
    """A vocabulary's trie; it needs no scratch."""

    def __init__(self, trie: TokenTrie) -> None:
        self._trie = trie

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        raise_if_stopped()
        number = kinds.shape[0]
        room = int((pretokens.ends - pretokens.starts).sum()) + number
        ids, ends = np.empty(room, np.uint32), np.empty(number + 1, np.int64)
        arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._trie
        return Encoding(ids[: encode_longest(*arguments, ids, ends)], ends)


NAME = "longest_match"


@dataclass(frozen=True, eq=False)
class LongestMatchModel(BaseModel):
    """A vocabulary of which the longest token is taken.

    Attributes:
        vocabulary: the bytes of every id.

    Raises:
        VocabularyError: a byte is not a token, or there are too many ids.
    """

    family = NAME

    def __post_init__(self) -> None:
        check_size(self.vocabulary)
        check_bytes(self.byte_ids, "longest match needs them all")

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, _spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary; there is nothing else."""
        return cls(vocabulary)

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        ids = np.full(256, -1, np.int32)
        for i, token in self.vocabulary.ordinary():
            if len(token) == 1:
                ids[token[0]] = i
        return ids

    def spec(self) -> dict[str, Any]:
        """Return nothing: everything is in the vocabulary."""
        return {}

    def encoder(self) -> LongestMatchEncoder:
        """Make an encoder."""
        return LongestMatchEncoder(self.vocabulary, self.byte_ids)
