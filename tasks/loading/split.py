"""Divide the positions of an epoch among ranks and workers.

The model. All ranks go through the positions of an epoch in step. A step takes `batch_size` × `world_size`
positions, of which rank r has the r-th `batch_size`. Within a rank, worker w of W makes the batches w, w + W,
w + 2W, …, so that taking batches from the workers in turn gives the order of a single worker.

If fewer positions than a step takes remain at the end:

    keep   they are spread evenly over the ranks, to within one, the lower ranks first. Everything
           comes exactly once. The last batch is smaller; if there are fewer positions than ranks, the
           higher ranks get none and have one batch less.
    drop   they are left out of this epoch. Every rank has the same number of full batches.
    wrap   positions from the beginning of the epoch fill the step up. Every rank has the same number of full
           batches; some sequences come twice.

Laws. With `keep` the ranks' and workers' positions from any start on are a partition of the remaining
positions; with `drop`, of all but the last, partial step. So a single number, the position in the epoch, is
enough to resume with another number of ranks or workers, or another batch size.

The order of sequences in an epoch.

The model. Without shuffling, every epoch has the artifact's order, which is the mixture's; only this order
keeps a schedule or a curriculum. With shuffling, every epoch is a keyed permutation of all sequences
(`tasks.mixing.permutation`) that depends on the seed, the epoch and the number of sequences, but not on
ranks, workers or earlier epochs. So the sequence at any position can be computed directly, which makes
resuming simple.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted

Remainder: TypeAlias = Literal["keep", "drop", "wrap"]
# Up to this many sequences an epoch's whole permutation is kept in memory: 8 MB.
_KEPT = 1 << 20


@dataclass(frozen=True)
class Split:
    """One worker's part of every epoch.

    Attributes:
        batch_size: sequences per step and rank; ≥ 1.
        rank: in [0, world_size).
        world_size: ranks; ≥ 1.
        worker: in [0, num_workers).
        num_workers: workers of this rank; ≥ 1.
        remainder: how the last, partial step is treated; see the module.

    Raises:
        LoadingError: one of them is out of range.
    """

    batch_size: int
    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1
    remainder: Remainder = "keep"

    def __post_init__(self) -> None:
        for name in ("batch_size", "world_size", "num_workers"):
            if getattr(self, name) < 1:
                raise LoadingError(f"loading: {name}={getattr(self, name)} must be at least 1")
        for one, all_of_them in (("rank", "world_size"), ("worker", "num_workers")):
            value, number = getattr(self, one), getattr(self, all_of_them)
            if not 0 <= value < number:
                raise LoadingError(
                    f"loading: {one}={value} must be in [0, {number}), as {all_of_them}={number}; they count "
                    "from 0"
                )
        if self.remainder not in get_args(Remainder):
            raise LoadingError(
                f"loading: remainder={self.remainder!r} must be one of {', '.join(get_args(Remainder))}"
            )

    @property
    def stride(self) -> int:
        """Positions that a step takes, all ranks together."""
        return self.batch_size * self.world_size

    def num_batches(self, num_left: int) -> int:
        """Number of batches of this rank (all its workers) in the last `num_left` positions."""
        full, rest = divmod(num_left, self.stride)
        first, stop = self._share(rest)
        return full + int(stop > first)

    def steps(self, num_left: int) -> range:
        """The steps of this worker, counted from the point at which `num_left` positions remain."""
        return range(self.worker, self.num_batches(num_left), self.num_workers)

    def positions(self, step: int, num_left: int) -> range:
        """This rank's positions in a step, counted in the same way; `wrap` may exceed `num_left`."""
        begin = step * self.stride
        if begin + self.stride <= num_left:
            first, stop = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        else:
            first, stop = self._share(num_left - begin)
        return range(begin + first, begin + stop)

    def is_over(self, num_left: int) -> bool:
        """Whether no rank gets another batch in this epoch."""
        return num_left <= 0 or (self.remainder == "drop" and num_left < self.stride)

    def _share(self, rest: int) -> tuple[int, int]:
        """This rank's part of the last, partial step of `rest` positions: [first, stop)."""
        if rest == 0 or self.remainder == "drop":
            return 0, 0
        if self.remainder == "wrap":
            return self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        each, over = divmod(rest, self.world_size)
        first = self.rank * each + min(self.rank, over)
        return first, first + each + int(self.rank < over)


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
