"""A curriculum of sequence lengths: the length of batches' rows over a run, short ones first.

The model. A packed sequence of L tokens can be read as k rows of L / k. Batches keep their tokens, so that
the cost of a step and the meaning of a place do not depend on the length; only the reach of attention does. A
row is a sequence of its own: a piece that continues in the next row becomes two pieces.

Source: Li, Zhang, He, "The Stability-Efficiency Dilemma" (2022), who begin training with short sequences.
They truncate longer ones; here no token is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError

_SHORTEST = 8


@dataclass(frozen=True)
class RowLengths:
    """The lengths of rows, and the points of the run from which they hold.

    Attributes:
        sequence_length: tokens of the packing's own sequences.
        points: (start, length): from sequence `start` of the run on, rows have `length` tokens; none: always
            the packing's own.

    Raises:
        LoadingError: the first point is not at 0, they are out of order, or a length does not divide the
            packing's own.
    """

    sequence_length: int
    points: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.points]
        if starts and starts[0] != 0:
            raise LoadingError(f"loading: sequence_lengths begin at {starts[0]}; the first must be at 0")
        for before, start in pairwise(starts):
            if start <= before:
                raise LoadingError(
                    f"loading: sequence_lengths have {start} after {before}; starts must ascend, in "
                    "sequences since the beginning of the run"
                )
        for _, length in self.points:
            if length < _SHORTEST or self.sequence_length % length:
                raise LoadingError(
                    f"loading: sequence_lengths have {length}, which must be at least {_SHORTEST} and divide "
                    f"the packing's own {self.sequence_length}"
                )

    def parts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of rows per sequence at these positions, counted in sequences of the run: int64 [n]."""
        starts, lengths = np.array(self.points or [(0, self.sequence_length)], dtype=np.int64).T
        found: NDArray[np.int64] = lengths[np.searchsorted(starts, positions, side="right") - 1]
        return self.sequence_length // found


def cut_pieces(
    ends: NDArray[np.int64], begins: NDArray[np.int64], num_tokens: int, length: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Cut pieces at the ends of rows.

    Args:
        ends: int64 [p], the end of each piece, counted through all sequences; ascending.
        begins: int64 [p], the start of each piece, counted in the same way.
        num_tokens: of all sequences, padding included.
        length: tokens of a row; divides the sequences'.

    Returns:
        int32 [q], the end of each piece in its row; int64 [rows + 1], the index of each row's first piece
        among them.
    """
    bounds = np.arange(0, num_tokens, length, dtype=np.int64)
    piece = np.searchsorted(ends, bounds, side="right")
    known = np.append(begins, num_tokens)
    cuts = bounds[known[piece] < bounds]
    every = np.sort(np.concatenate([ends, cuts]))
    rows = (every - 1) // length
    firsts = np.searchsorted(rows, np.arange(num_tokens // length + 1))
    return (every - rows * length).astype(np.int32), firsts
