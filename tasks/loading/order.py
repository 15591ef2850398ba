"""The order of sequences in an epoch.

The model. Without shuffling, every epoch has the artifact's order, which is the mixture's; only this order
keeps a schedule or a curriculum. With shuffling, every epoch is a keyed permutation of all sequences
(`tasks.mixing.permutation`) that depends on the seed, the epoch and the number of sequences, but not on
ranks, workers or earlier epochs. So the sequence at any position can be computed directly, which makes
resuming simple.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted

# Up to this many sequences an epoch's whole permutation is kept in memory: 8 MB.
_KEPT = 1 << 20


class Order:
    """The orders of all epochs of `size` sequences.

    Args:
        size: number of sequences.
        shuffle: whether epochs are permuted at all.
        seed: seed of the permutations; any whole number from 0.
    """

    def __init__(self, size: int, shuffle: bool, seed: int) -> None:
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self._whole = lru_cache(maxsize=1)(self._permutation)

    def __reduce__(self) -> tuple[type["Order"], tuple[int, bool, int]]:
        return Order, (self.size, self.shuffle, self.seed)

    def sequences(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sequences at `positions`, int64 [n] in [0, size), of an epoch; int64 [n]."""
        if not self.shuffle:
            return positions
        if self.size <= _KEPT:
            return self._whole(epoch)[positions]
        return permuted(positions, self.size, self._key(epoch))

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return permutation(self.size, self._key(epoch))

    def _key(self, epoch: int) -> tuple[int, ...]:
        return permutation_key("loading", self.seed, epoch)
