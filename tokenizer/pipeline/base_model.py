"""What the models of all families have in common: how they show tokens, and what they refuse."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.core.text import readable
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary
from tokmill.tokenizer.jit import Kernel
from tokmill.tokenizer.kernels.cache import DONE, NUM_IDS, PAUSED, PRETOKEN
from tokmill.tokenizer.kernels.lookup import add_up
from tokmill.tokenizer.pipeline.model import Breach, Encoding
from tokmill.tokenizer.splitting import Pretokens

UNKNOWN = "[UNK]"

_NO_PROBES: Mapping[str, str] = MappingProxyType({})
UNKNOWN_PROBES = MappingProxyType({"unknown": "\U000f0000\U000f0001 \U000f0002a"})
"""A text that is unlikely to be in any vocabulary: private-use characters."""


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A model as far as most families have it; see `pipeline.model.Model`."""

    vocabulary: Vocabulary

    @property
    def unknown_token(self) -> str | None:
        """The special token for text that is not in the vocabulary; None if it covers all text."""
        return None

    @property
    def unknown_id(self) -> int:
        """The id of the unknown token; -1 without one."""
        return -1 if self.unknown_token is None else self.vocabulary.special_tokens[self.unknown_token]

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens."""
        return replace(self, vocabulary=vocabulary)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "byte" if len(token) == 1 else "piece"

    def kinds(self) -> list[str]:
        """Return the kind of every id: one of `kind`, `byte`, `unknown`, `special`, `reserved` or `hole`."""
        kinds = self.vocabulary.kinds(self.kind)
        if self.unknown_token is not None:
            kinds[self.unknown_id] = "unknown"
        for token in self.vocabulary.byte_ids:
            kinds[token] = "byte"
        return kinds

    def readable(self, token: int) -> str:
        """Return a token as one line of text; a part of a character is written as its bytes."""
        return readable(self.vocabulary.tokens[token])

    def figures(self) -> dict[str, int]:
        """Return the number of pieces."""
        return {"num_pieces": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pre-tokens: nothing is lost."""
        return list(pretokens)

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unknown; none if no text is."""
        return _NO_PROBES if self.unknown_token is None else UNKNOWN_PROBES


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of `[UNK]`, the special and reserved tokens, and one other."""
    return len({UNKNOWN, *special_tokens}) + num_reserved + 1


def check_unknown(vocabulary: Vocabulary, unknown_token: str | None) -> None:
    """Refuse an unknown token that is not a special token."""
    if unknown_token not in vocabulary.special_tokens:
        raise VocabularyError(
            f"vocabulary: the unknown token {unknown_token!r:.200} must be one of the special tokens"
        )


def check_size(vocabulary: Vocabulary, most: int = MAX_IDS) -> None:
    """Refuse a vocabulary with too many ids."""
    if vocabulary.size > most:
        raise VocabularyError(f"vocabulary: {vocabulary.size} ids are too many; at most {most} can be used")


def check_bytes(byte_ids: NDArray[np.int32], needs: str) -> None:
    """Refuse a vocabulary without a token for each byte."""
    missing = np.flatnonzero(byte_ids < 0)
    if missing.shape[0]:
        raise VocabularyError(
            f"vocabulary: {missing.shape[0]} of the 256 bytes are not tokens (the first is "
            f"{int(missing[0]):#04x}), but {needs}"
        )


def check_pieces(pieces: Iterable[tuple[int, bytes]]) -> None:
    """Refuse pieces of characters that are not UTF-8."""
    for i, token in pieces:
        try:
            token.decode()
        except UnicodeDecodeError:
            raise VocabularyError(
                f"vocabulary: the piece {token!r:.200} of id {i} is not UTF-8, so no text has it"
            ) from None


class Accounting:
    """The known tokens and the unknown strings together have as many bytes as the text.

    Ids are below `vocab_size`, and every id belongs to a segment. A special token is as long
    as its name, as it occurs in the text.
    """

    def __init__(self, token_offsets: NDArray[np.int64], unknown_id: int) -> None:
        """Take the bounds of the tokens' bytes, int64 [vocab_size + 1], and the unknown token's id, or -1."""
        self._lengths = np.diff(token_offsets)
        if unknown_id >= 0:
            self._lengths[unknown_id] = 0  # its text is counted separately

    def breach(
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """Find where an encoding breaks the law."""
        size = self._lengths.shape[0]
        if ends[0] != 0 or ends[-1] != ids.shape[0] or (np.diff(ends) < 0).any():
            return Breach(0, f"its ids go from {ends[0]} to {ends[-1]} of {ids.shape[0]}")
        if ids.shape[0] and int(ids.max()) >= size:
            place = int(np.argmax(ids >= size))
            segment = int(np.searchsorted(ends, place, side="right")) - 1
            return Breach(segment, f"it has the id {ids[place]}, but ids are below {size}")
        lost = np.zeros(ends.shape[0] - 1, np.int64) if unknown_bytes is None else unknown_bytes
        known = np.empty(ends.shape[0] - 1, np.int64)
        add_up(ids, ends, self._lengths, known)
        wrong = np.flatnonzero((known + lost != np.diff(bounds)) | (lost < 0))
        if not wrong.shape[0]:
            return None
        at = int(wrong[0])
        return Breach(
            at,
            f"its known tokens have {known[at]} bytes and its unknown text {lost[at]}, but its text has "
            f"{bounds[at + 1] - bounds[at]}",
        )


USUAL_BYTES = 1 << 12
"""Bytes of the longest pre-token that a workspace has scratch for at first."""

BEHIND = 8
"""Ids that kernels write at a time, even if there are fewer."""

KEPT_BYTES = 1 << 21
"""Scratch for longer pre-tokens is freed after use."""

Lent = TypeVar("Lent")


class LendsWorkspaces(Generic[Lent]):
    """Lends a workspace to each thread, whose cache is kept for the next one."""

    def __init__(self, make: Callable[[], Lent]) -> None:
        self._make, self._free = make, list[Lent]()

    @contextmanager
    def workspace(self) -> Iterator[Lent]:
        """Lend a workspace to one thread for the length of the block."""
        try:
            lent = self._free.pop()
        except IndexError:
            lent = self._make()
        try:
            yield lent
        finally:
            self._free.append(lent)


def refuse_longer(length: int, most: int, what: str = "encode") -> None:
    """Refuse a pre-token that is longer than positions can number."""
    if length > most:
        raise TokenizerError(
            f"{what}: a pre-token has {length} bytes, but at most {most} can be encoded; cut the document, "
            "or use a split pattern that does"
        )


class ResumableWorkspace(ABC):
    """Encodes pre-tokens by a kernel that goes on where it stopped; for one thread at a time."""

    kernel: ClassVar[Kernel[..., int]]
    """Takes text, `model`, `memory`, what it writes, and a place; see `unigram.kernels.encoding`."""

    most_bytes: ClassVar[int]
    """Bytes of the longest pre-token that can be encoded."""

    model: Any
    memory: Any

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments, a slice at a time, enlarging the scratch if need be."""
        number = kinds.shape[0]
        offsets = np.zeros(number + 1, np.int64)
        unknown = np.zeros(number, np.int64)
        if not pretokens.starts.shape[0]:
            return Encoding(np.empty(0, np.uint32), offsets, unknown)
        ids = np.empty(int(pretokens.ends[-1] - pretokens.starts[0]) + number + BEHIND, np.uint32)
        text = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds
        progress, lacking = np.zeros(3, np.int64), PAUSED
        while lacking != DONE:
            raise_if_stopped()
            until = int(pretokens.starts[progress[PRETOKEN]]) + SLICE_BYTES
            lacking = self.kernel(*text, self.model, self.memory, ids, offsets, unknown, progress, until)
            if lacking > 0:
                refuse_longer(lacking, self.most_bytes)
                self.enlarge(max(lacking, 2 * self.scratch_bytes))
        if self.scratch_bytes > KEPT_BYTES:
            self.shrink()
        return Encoding(ids[: progress[NUM_IDS]], offsets, unknown)

    @property
    @abstractmethod
    def scratch_bytes(self) -> int:
        """How many bytes of a pre-token the scratch is for."""

    @abstractmethod
    def enlarge(self, length: int) -> None:
        """Make the scratch longer."""

    @abstractmethod
    def shrink(self) -> None:
        """Put the usual scratch in place of a long one."""
