"""Workspaces that families share: lent to threads, and with scratch that grows for long pre-tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.kernels.cache import DONE, NUM_IDS, PAUSED, PRETOKEN
from tokmill.tokenizer.pipeline.model import Encoding
from tokmill.tokenizer.splitting import Pretokens

USUAL_BYTES = 1 << 12
"""Bytes of the longest pre-token that a workspace has scratch for at first."""

BEHIND = 8
"""Ids that kernels write at a time, even if there are fewer."""

_KEPT_BYTES = 1 << 21  # scratch for longer pre-tokens is freed after use

Lent = TypeVar("Lent")
Ints: TypeAlias = NDArray[np.int64]
Arguments: TypeAlias = tuple[NDArray[np.uint8], Ints, Ints, Ints, Ints]
"""Data, the starts, ends and offsets of pre-tokens, and kinds, as kernels take them."""


class Made(NamedTuple):
    """What a kernel has written so far.

    Attributes:
        ids: uint32, with room for all.
        offsets: int64, shape (num_segments + 1,).
        unknown: int64, shape (num_segments,), bytes of unknown text.
        progress: int64, shape (3,).
    """

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    unknown: NDArray[np.int64]
    progress: NDArray[np.int64]


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


class ResumableWorkspace(ABC):
    """Encodes pre-tokens by a kernel that goes on where it stopped; for one thread at a time."""

    most_bytes: ClassVar[int]
    """Bytes of the longest pre-token that can be encoded."""

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments, a slice at a time, enlarging the scratch if need be."""
        offsets, unknown = np.zeros(kinds.shape[0] + 1, np.int64), np.zeros(kinds.shape[0], np.int64)
        if not pretokens.starts.shape[0]:
            return Encoding(np.empty(0, np.uint32), offsets, unknown)
        ids = self.ids(int(pretokens.ends[-1] - pretokens.starts[0]) + kinds.shape[0] + BEHIND)
        arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds
        made, lacking = Made(ids, offsets, unknown, np.zeros(3, np.int64)), PAUSED
        while lacking != DONE:
            raise_if_stopped()
            until = int(pretokens.starts[made.progress[PRETOKEN]]) + SLICE_BYTES
            lacking = self.resume(arguments, made, until)
            if lacking > self.most_bytes:
                raise TokenizerError(
                    f"encode: a pre-token has {lacking} bytes, but at most {self.most_bytes} can be encoded; "
                    "cut the document, or use a split pattern that does"
                )
            if lacking > 0:
                self.enlarge(max(lacking, 2 * self.scratch_bytes))
        if self.scratch_bytes > _KEPT_BYTES:
            self.shrink()
        return Encoding(ids[: made.progress[NUM_IDS]], offsets, unknown)

    def ids(self, room: int) -> NDArray[np.uint32]:
        """Return room for ids."""
        return np.empty(room, np.uint32)

    @abstractmethod
    def resume(self, arguments: Arguments, made: Made, until: int) -> int:
        """Call the kernel; return DONE, PAUSED, or the length of a pre-token that needs more scratch."""

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
