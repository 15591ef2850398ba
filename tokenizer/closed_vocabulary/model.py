"""A closed vocabulary: every string that it does not have becomes the one unknown token.

A family defines its strings (`Cut`): pre-tokens for `word_level`, characters for `character_level`.

Laws: a string that is a token becomes that token, any other the unknown token, whatever
    its neighbours are; the bytes of the known tokens and of the strings that became unknown add up to the
    normalized text. Decoding gives the known strings back, and the unknown token's name (`[UNK]`) for each
    other one: that text is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_tokens
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.counting import CountTables
from tokmill.tokenizer.kernels.lookup import look_up
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, Accounting, BaseModel, check_size, check_unknown
from tokmill.tokenizer.pipeline.model import Encoding, Law, SegmentedText
from tokmill.tokenizer.splitting import Pretokens

Cut: TypeAlias = Callable[[NDArray[np.uint8], Pretokens], Pretokens]
"""Cuts pre-tokens, which lie side by side and are not empty, into the strings that are looked up."""


class ClosedEncoder:
    """Turns pre-tokens into ids; safe to share between threads."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        unknown_id: int,
        cut: Cut,
    ) -> None:
        self.law: Law = Accounting(vocabulary.offsets, unknown_id)
        self._tables = lay_out_tokens(vocabulary, np.array([i for i, _ in vocabulary.ordinary()], np.int64))
        self._unknown_id, self._cut = unknown_id, cut

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        own = self._tables._replace(block=np.empty_like(self._tables.block))
        yield Workspace(own, self._unknown_id, self._cut)

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends: where its string does."""
        strings = self._cut(text.data, text.split())
        whole = np.repeat(text.kinds >= 0, np.diff(strings.offsets))
        starts = np.sort(np.concatenate([strings.starts[~whole], text.bounds[:-1][text.kinds >= 0]]))
        ends = np.sort(np.concatenate([strings.ends[~whole], text.bounds[1:][text.kinds >= 0]]))
        return starts, ends


class Workspace:
    """A vocabulary's tables with scratch of its own; for one thread at a time."""

    def __init__(
        self,
        tables: CountTables,
        unknown_id: int,
        cut: Cut,
    ) -> None:
        self._tables, self._unknown_id, self._cut = tables, unknown_id, cut

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        raise_if_stopped()
        strings, number = self._cut(data, pretokens), kinds.shape[0]
        ids = np.empty(strings.starts.shape[0] + number, np.uint32)
        ends, unknown_bytes = np.empty(number + 1, np.int64), np.empty(number, np.int64)
        arguments = data, strings.starts, strings.ends, strings.offsets, kinds, self._tables, self._unknown_id
        size = look_up(*arguments, ids, ends, unknown_bytes)
        return Encoding(ids[:size], ends, unknown_bytes)


@dataclass(frozen=True, eq=False)
class ClosedModel(BaseModel):
    """A model of a closed vocabulary.

    Attributes:
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        family: the family's name.
        unit: the family's name for its tokens: `word`, `character`.
        cut: cuts pre-tokens into strings.
        unknown_token: the name of the unknown token.

    Raises:
        VocabularyError: the unknown token is not a special token, or there are too many ids.
    """

    family: str
    unit: str
    cut: Cut
    unknown_token: str = UNKNOWN

    def __post_init__(self) -> None:
        check_unknown(self.vocabulary, self.unknown_token)
        check_size(self.vocabulary)

    def spec(self) -> dict[str, Any]:
        """Return the name of the unknown token; everything else is in the vocabulary."""
        return {"unknown_token": self.unknown_token}

    def encoder(self) -> ClosedEncoder:
        """Make an encoder."""
        return ClosedEncoder(self.vocabulary, self.unknown_id, self.cut)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token: the family's own."""
        del token
        return self.unit

    def figures(self) -> dict[str, int]:
        """Return the number of words, or characters, in the vocabulary."""
        return {f"num_{self.unit}s": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the known strings, and the unknown token's name for each other one."""
        data, offsets = pack_bytes(list(pretokens))
        whole = Pretokens(offsets[:-1], offsets[1:], np.array([0, len(pretokens)]))
        known = {token for _, token in self.vocabulary.ordinary()}
        ends = np.concatenate([np.zeros(1, np.int64), self.cut(data, whole).ends])
        strings = unpack(data, ends)
        return [string if string in known else self.unknown_token.encode() for string in strings]
