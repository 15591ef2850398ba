"""Which sequence stands at which position of an epoch.

The model. Without shuffling an epoch is the artifact's own order, which is the mixture's: a schedule or a
curriculum is only kept this way. With it every epoch is a keyed permutation of all sequences
(`tasks.mixing.permutation`), which follows from the seed, the epoch and the number of sequences alone: not
from ranks, workers or what came before. So any position can be looked up at any time, and that is all that
resuming needs.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted

# Up to this many an epoch's permutation is kept whole: 8 MB.
_KEPT = 1 << 20


class Order:
    """The orders of all epochs of `size` sequences.

    Args:
        size: number of sequences.
        shuffle: whether epochs are permuted at all.
        seed: decides the permutations; any whole number from 0.
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
