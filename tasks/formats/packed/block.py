"""Packed sequences in memory, with the boundaries of their pieces: the input of the formats' writers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_GROUP_TOKENS = 1 << 20


@dataclass(frozen=True)
class SequenceBlock:
    """n sequences of L tokens that hold p pieces.

    Attributes:
        rows: uint16 | uint32 [n, L], tokens and padding.
        firsts: int64 [n + 1]; sequence i has the pieces [firsts[i], firsts[i + 1]).
        lengths: int64 [p], tokens of each piece; they follow each other from the start of the sequence.
        document_starts: int64 [p], token of its document at which each piece starts.
    """

    rows: NDArray[Any]
    firsts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    document_starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> "SequenceBlock":
        """Sequences [start, stop), as views."""
        first, last = int(self.firsts[start]), int(self.firsts[stop])
        return SequenceBlock(
            self.rows[start:stop],
            self.firsts[start : stop + 1] - first,
            self.lengths[first:last],
            self.document_starts[first:last],
        )

    @property
    def ends(self) -> NDArray[np.int64]:
        """Token of its sequence at which each piece ends: int64 [p]."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        ends: NDArray[np.int64] = sums[1:] - np.repeat(sums[self.firsts[:-1]], np.diff(self.firsts))
        return ends

    @property
    def places(self) -> NDArray[np.int64]:
        """Flat index in `rows` at which each piece begins: int64 [p]."""
        row = np.repeat(np.arange(len(self)), np.diff(self.firsts))
        places: NDArray[np.int64] = row * self.rows.shape[1] + self.ends - self.lengths
        return places

    def per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """`position_ids` int32, `segment_ids` int32 and `loss_mask` bool, each [n × L]; see the reader."""
        within = np.arange(int(self.lengths.sum())) - np.repeat(
            np.cumsum(self.lengths) - self.lengths, self.lengths
        )
        begins = self.places
        tokens = np.repeat(begins, self.lengths) + within
        nth = np.arange(len(self.lengths)) - np.repeat(self.firsts[:-1], np.diff(self.firsts))
        positions, segments = (np.zeros(self.rows.size, dtype=np.int32) for _ in range(2))
        positions[tokens] = within
        segments[tokens] = np.repeat(nth + 1, self.lengths)
        return positions, segments, positions > 0

    @property
    def with_padding(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of pieces and of padding, which add up to the length of each sequence.

        Returns:
            int64 [n + 1], where each sequence's begin among them; int64 [p + padded sequences].
        """
        used = np.bincount(
            np.repeat(np.arange(len(self)), np.diff(self.firsts)), weights=self.lengths, minlength=len(self)
        ).astype(np.int64)
        padding = self.rows.shape[1] - used
        lengths = np.insert(self.lengths, self.firsts[1:][padding > 0], padding[padding > 0])
        return self.firsts + np.concatenate([[0], np.cumsum(padding > 0)]), lengths


@dataclass(frozen=True)
class ShardShape:
    """The properties of a shard that its writer needs before the first sequence.

    Attributes:
        num_sequences: sequences of the shard.
        sequence_length: tokens of each.
        dtype: dtype of the tokens, little-endian.
        labels: whether to write labels and label masks, too.
    """

    num_sequences: int
    sequence_length: int
    dtype: np.dtype[Any]
    labels: bool = False


Append: TypeAlias = Callable[[SequenceBlock], None]
"""Writes the next sequences. Every block but the last has a multiple of `group_rows` sequences."""


def group_rows(sequence_length: int) -> int:
    """Sequences per row group, chosen so that the files do not depend on the size of the blocks."""
    return max(1, _GROUP_TOKENS // sequence_length)
