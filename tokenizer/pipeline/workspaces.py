"""Workspaces that families share: lent to threads, and with scratch that grows for long pre-tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.jit import Kernel
from tokmill.tokenizer.kernels.cache import DONE, NUM_IDS, PAUSED, PRETOKEN
from tokmill.tokenizer.pipeline.model import Encoding
from tokmill.tokenizer.splitting import Pretokens

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
