"""Select the rows that belong to given documents, without one Python object per row."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Document(Protocol):
    """The values that identify a document."""

    @property
    def source(self) -> str:
        """The source's name."""
        ...

    @property
    def shard(self) -> int:
        """The index of its shard in the source."""
        ...

    @property
    def ordinal(self) -> int:
        """Its number in the shard."""
        ...


class Members:
    """A set of documents, each identified by source, shard, and position in the shard (or ordinal).

    Args:
        sources: [d], below 2^16.
        shards: [d], below 2^32.
        numbers: [d], at least 0; multiplied by the number of distinct shards, below 2^64.
    """

    def __init__(self, sources: NDArray[Any], shards: NDArray[Any], numbers: NDArray[Any]) -> None:
        pairs = _paired(sources, shards)
        self._pairs = np.unique(pairs)
        self._keys = np.unique(self._keyed(pairs, numbers))

    def among(self, sources: NDArray[Any], shards: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each row belongs to one of the documents: bool [n]."""
        pairs = _paired(sources, shards)
        found: NDArray[np.bool_] = np.isin(pairs, self._pairs)
        if found.any():
            found[found] = np.isin(self._keyed(pairs[found], numbers[found]), self._keys)
        return found

    def _keyed(self, pairs: NDArray[np.uint64], numbers: NDArray[Any]) -> NDArray[np.uint64]:
        """A unique key for each (source, shard) pair and number."""
        at = np.searchsorted(self._pairs, pairs).astype(np.uint64)
        return numbers.astype(np.uint64) * np.uint64(max(1, len(self._pairs))) + at


def _paired(sources: NDArray[Any], shards: NDArray[Any]) -> NDArray[np.uint64]:
    pairs: NDArray[np.uint64] = sources.astype(np.uint64) << np.uint64(32) | shards.astype(np.uint64)
    return pairs
