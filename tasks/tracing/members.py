"""Which of many rows are of one of some documents, without a Python object a row."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Document(Protocol):
    """What tells a document from all others."""

    @property
    def source(self) -> str:
        """The source's name."""
        ...

    @property
    def shard(self) -> int:
        """Its shard among the source's."""
        ...

    @property
    def ordinal(self) -> int:
        """Its number in the shard."""
        ...


class Members:
    """Some documents by three numbers: source, shard, and place in the shard (or ordinal).

    Args:
        sources: [d], below 2^16.
        shards: [d], below 2^32.
        numbers: [d], at least 0; times the number of different shards, below 2^64.
    """

    def __init__(self, sources: NDArray[Any], shards: NDArray[Any], numbers: NDArray[Any]) -> None:
        pairs = _paired(sources, shards)
        self._pairs = np.unique(pairs)
        self._keys = np.unique(self._keyed(pairs, numbers))

    def among(self, sources: NDArray[Any], shards: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows are of one of the documents: bool [n]."""
        pairs = _paired(sources, shards)
        found: NDArray[np.bool_] = np.isin(pairs, self._pairs)
        if found.any():
            found[found] = np.isin(self._keyed(pairs[found], numbers[found]), self._keys)
        return found

    def _keyed(self, pairs: NDArray[np.uint64], numbers: NDArray[Any]) -> NDArray[np.uint64]:
        """One number for each known pair with a number."""
        at = np.searchsorted(self._pairs, pairs).astype(np.uint64)
        return numbers.astype(np.uint64) * np.uint64(max(1, len(self._pairs))) + at


def _paired(sources: NDArray[Any], shards: NDArray[Any]) -> NDArray[np.uint64]:
    pairs: NDArray[np.uint64] = sources.astype(np.uint64) << np.uint64(32) | shards.astype(np.uint64)
    return pairs
