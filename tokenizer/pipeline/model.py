"""The protocols of normalizers, and of what a family of tokenizers implements: model, encoder, law, trainer.

A model turns pre-tokens into ids; everything before and after it is shared (`pipeline.definition`). The rest
of tokmill knows models through these protocols alone, and finds families by name (`pipeline.families`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.splitting import Pretokens, Splitter

Progress = Callable[[int, int], None]
"""Called during training with the number of steps done and wanted."""


class TextNormalizer(Protocol):
    """A normalizer, as a part of a tokenizer; a frozen value."""

    @property
    def name(self) -> str | None:
        """Its name, for people; None if it changes nothing."""
        ...

    def spec(self) -> Any:
        """Return it as JSON-able data; equal normalizers give equal data."""
        ...

    def text(self, text: str, *, first: bool = True) -> str:
        """Normalize one text; `first` says whether a document begins with it."""
        ...

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
        first: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Normalize each document of a buffer separately.

        Bytes that are not UTF-8 may stay as they are.

        Args:
            data: uint8, shape (num_bytes,); UTF-8.
            offsets: int64, shape (n + 1,).
            keep: shape (n,); True where a document is left as it is (a special token).
            first: shape (n,); False for a part of a document that does not begin it. Few normalizers care.

        Returns:
            The new buffer and its offsets.
        """
        ...

    def final_boundary(self, data: bytes) -> int:
        """Return the last place at which a text can be cut without changing its normalized form.

        See `components.normalizers.final_boundary`.
        """
        ...


class Breach(NamedTuple):
    """A place where a law is broken.

    Attributes:
        segment: the first segment that breaks it.
        says: the problem there.
    """

    segment: int
    says: str


class Encoding(NamedTuple):
    """The ids of some segments of text.

    Attributes:
        ids: uint32, shape (num_tokens,).
        ends: int64, shape (num_segments + 1,); segment s has the ids `ids[ends[s]:ends[s + 1]]`.
        unknown_bytes: int64, shape (num_segments,): bytes of each segment that became unknown tokens;
            None for a model that has no unknown token.
    """

    ids: NDArray[np.uint32]
    ends: NDArray[np.int64]
    unknown_bytes: NDArray[np.int64] | None = None


class Law(Protocol):
    """A relation between every text and its ids; checked in every run.

    The check costs one addition per token. An encoding that fails it is a fault of this package or of the
    machine's memory, never of the text, and is not returned.
    """

    def breach(
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """Find where an encoding breaks the law.

        Args:
            ids: see `Encoding`.
            ends: see `Encoding`.
            bounds: int64, shape (num_segments + 1,); the normalized text of segment s lies between the bytes
                `bounds[s]` and `bounds[s + 1]`.
            unknown_bytes: see `Encoding`.
        """
        ...


class Workspace(Protocol):
    """The memory that one thread needs to encode."""

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments.

        Args:
            data: uint8, the text.
            pretokens: of each segment of it.
            kinds: int64, shape (num_segments,); -1 for text, or the id of the whole segment.

        Returns:
            The encoding, whose ids the next call may overwrite.
        """
        ...


class SegmentedText(NamedTuple):
    """Normalized text in segments.

    Attributes:
        data: uint8, the text.
        bounds: int64, shape (num_segments + 1,).
        kinds: see `Workspace.encode`.
        split: returns the pre-tokens of the segments.
    """

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    kinds: NDArray[np.int64]
    split: Callable[[], Pretokens]


class Encoder(Protocol):
    """Turns pre-tokens into ids; safe to share between threads, which borrow a workspace each.

    Attributes:
        law: the law that every encoding is checked against.
    """

    law: Law

    def workspace(self) -> AbstractContextManager[Workspace]:
        """Lend a workspace to one thread for the length of the block."""
        ...

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the bounds of each token in the text, in bytes.

        Args:
            ids: int64, shape (num_tokens,); the encoding of these segments.
            text: the segments.
        """
        ...


class RawWorkspace(Protocol):
    """The memory that one thread needs to encode text that is neither normalized nor cut."""

    def encode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], kinds: NDArray[np.int64]
    ) -> tuple[Encoding, NDArray[np.int64]] | None:
        """Encode segments of text.

        Args:
            data: uint8, the text.
            bounds: int64, shape (num_segments + 1,); where each segment begins, and the last one ends.
            kinds: see `Workspace.encode`.

        Returns:
            The encoding, whose ids the next call may overwrite, and bounds for the law, between which each
            segment has as many bytes as its words; None for text that has to be normalized and cut first.
        """
        ...


class RawText(Protocol):
    """Turns text that is neither normalized nor cut into the ids that it has otherwise, in less time."""

    def workspace(self) -> AbstractContextManager[RawWorkspace]:
        """Lend a workspace to one thread for the length of the block."""
        ...


@runtime_checkable
class TakesRawText(Protocol):
    """An encoder that may be able to take text as it is."""

    def raw_text(self, normalizer: TextNormalizer, splitter: Splitter) -> RawText | None:
        """Return what encodes text for which these are meant; None if they do not allow it."""
        ...


class Model(Protocol):
    """The part of a tokenizer that turns pre-tokens into ids; a frozen value."""

    @property
    def family(self) -> str:
        """The name of its family."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The bytes of every id, special tokens included."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return the model as JSON-able data, without the special tokens; equal models give equal data."""
        ...

    def with_vocabulary(self, vocabulary: Vocabulary) -> "Model":
        """Return the same model with other special tokens.

        Args:
            vocabulary: one whose ordinary tokens are the same, under the same ids.
        """
        ...

    def encoder(self) -> Encoder:
        """Make an encoder."""
        ...

    def kinds(self) -> list[str]:
        """Return the kind of every id: the family's own, or `special`, `reserved`, `unknown`, `hole`.

        Kinds of the family's own are ordinary tokens, which stand for text.
        """
        ...

    def readable(self, token: int) -> str:
        """Return a token as one line of text."""
        ...

    def figures(self) -> dict[str, int]:
        """Return the counts that describe this family's models, such as `num_merges`."""
        ...

    @property
    def unknown_token(self) -> str | None:
        """The special token for text that is not in the vocabulary; None if it covers all text."""
        ...

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return what decoding gets for some pre-tokens, to be joined by the decoder: the family's promise.

        It is found without encoding them.
        """
        ...

    def probes(self) -> Mapping[str, str]:
        """Return the texts, by name, that attestations of this family have besides the common ones."""
        ...


class Trainer(Protocol):
    """Makes models from the counts and options that it was made with."""

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model for each requested vocabulary size, in order.

        Raises:
            TrainingError: the counts are not enough; the message has a feasible size.
        """
        ...
