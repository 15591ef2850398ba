"""Which documents a source gives, in which order, and how the sources' documents are woven into one plan.

Laws. A source gives whole documents. It goes through all of them once an epoch, in a new order each epoch
that follows from the seed, the source's name and the epoch alone, so that another source, weight or total
does not reshuffle it. It stops where its tokens are nearest to its quota: less than one document away, never
above its limit, and never at nothing when its quota is not nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.errors import MixingError
from tasks.kernels.interleave import interleave
from tasks.mixing.permutation import permutation, permutation_key

_MOST_EPOCHS = 1 << 16
D = TypeVar("D", bound=np.generic)


@dataclass(frozen=True)
class Draw:
    """The documents that one source gives, in order.

    Attributes:
        documents: int64 [n], index among the source's documents.
        epochs: uint16 [n], 0 for the first time through the source.
        lengths: int64 [n], tokens.
    """

    documents: NDArray[np.int64]
    epochs: NDArray[np.uint16]
    lengths: NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        """Tokens drawn, repetitions included."""
        return int(self.lengths.sum())


def draw(lengths: NDArray[np.int64], quota: int, most: int, source: str, seed: int) -> Draw:
    """Draw documents of one source until their tokens are nearest to `quota`.

    Args:
        lengths: int64 [d], tokens of each document; documents of 0 tokens are never drawn.
        quota: tokens wanted, in [0, most].
        most: tokens that may not be exceeded; at least `lengths.sum()` unless `quota` is 0.
        source: the source's name; with the seed it decides the order.
        seed: any whole number ≥ 0.

    Of two equally near stops the earlier is taken.

    Raises:
        MixingError: the quota needs more than 65,536 epochs.
    """
    candidates = np.flatnonzero(lengths)
    num_epochs, rest = divmod(quota, int(lengths.sum())) if quota else (0, 0)
    if num_epochs >= _MOST_EPOCHS:
        raise MixingError(
            f"mix: source '{source}' would be drawn {num_epochs} times; at most {_MOST_EPOCHS - 1} are "
            "possible, so give it a smaller weight or more text"
        )
    orders = [_epoch_order(candidates, source, seed, epoch) for epoch in range(num_epochs)]
    if rest:
        order = _epoch_order(candidates, source, seed, num_epochs)
        room = most - num_epochs * int(lengths.sum())
        orders.append(order[: _stop(lengths[order], rest, room, at_least=int(num_epochs == 0))])
    documents = np.concatenate([*orders, np.empty(0, dtype=np.int64)])
    epochs = np.repeat(np.arange(len(orders)), [len(order) for order in orders]).astype(np.uint16)
    return Draw(documents, epochs, lengths[documents])


def _epoch_order(candidates: NDArray[np.int64], source: str, seed: int, epoch: int) -> NDArray[np.int64]:
    key = permutation_key("mix", seed, source, epoch)
    order: NDArray[np.int64] = candidates[permutation(len(candidates), key)]
    return order


def _stop(lengths: NDArray[np.int64], quota: int, room: int, at_least: int) -> int:
    """How many of these documents come nearest to `quota` tokens within `room`."""
    sums = np.cumsum(lengths)
    above = int(np.searchsorted(sums, quota))  # the first stop that reaches the quota
    below_tokens = int(sums[above - 1]) if above else 0
    nearer_above = int(sums[above]) - quota < quota - below_tokens
    return max(at_least, above + (nearer_above and int(sums[above]) <= room))


@dataclass(frozen=True)
class Weave:
    """The mixture in order.

    Attributes:
        sources: uint16 [n], index of the source at each position.
        documents: int64 [n], index among that source's documents.
        epochs: uint16 [n].
        lengths: int64 [n], tokens.
    """

    sources: NDArray[np.uint16]
    documents: NDArray[np.int64]
    epochs: NDArray[np.uint16]
    lengths: NDArray[np.int64]


def weave(draws: Sequence[Draw]) -> Weave:
    """Put the sources' documents into one order in which every source keeps its share (see `interleave`)."""
    lengths = np.concatenate([given.lengths for given in draws])
    offsets = np.cumsum([0, *(len(given.lengths) for given in draws)], dtype=np.int64)
    sources = interleave(lengths, offsets)
    taken = np.argsort(
        sources, kind="stable"
    )  # positions of source 0's documents in order, then source 1's, …
    return Weave(
        sources,
        _placed(np.concatenate([given.documents for given in draws]), taken),
        _placed(np.concatenate([given.epochs for given in draws]), taken),
        _placed(lengths, taken),
    )


def _placed(values: NDArray[D], positions: NDArray[np.intp]) -> NDArray[D]:
    placed = np.empty_like(values)
    placed[positions] = values
    return placed
