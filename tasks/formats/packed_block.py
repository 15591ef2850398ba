"""A run of packed sequences in memory, with the boundaries of their pieces: what writers of formats take."""

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
        document_starts: int64 [p], where in its document each piece starts.
        mask_continued: whether the first token of a piece that does not begin its document is left out of
            the loss.
    """

    rows: NDArray[Any]
    firsts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    document_starts: NDArray[np.int64]
    mask_continued: bool

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
            self.mask_continued,
        )

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where in its sequence each piece ends: int64 [p]."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        ends: NDArray[np.int64] = sums[1:] - np.repeat(sums[self.firsts[:-1]], np.diff(self.firsts))
        return ends

    @property
    def places(self) -> NDArray[np.int64]:
        """Where each piece begins, counted through all rows: int64 [p]."""
        row = np.repeat(np.arange(len(self)), np.diff(self.firsts))
        places: NDArray[np.int64] = row * self.rows.shape[1] + self.ends - self.lengths
        return places

    def per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """`position_ids` int32, `segment_ids` int32 and `loss_mask` bool, each [n × L]."""
        within = np.arange(int(self.lengths.sum())) - np.repeat(
            np.cumsum(self.lengths) - self.lengths, self.lengths
        )
        begins = self.places
        tokens = np.repeat(begins, self.lengths) + within
        nth = np.arange(len(self.lengths)) - np.repeat(self.firsts[:-1], np.diff(self.firsts))
        positions, segments = (np.zeros(self.rows.size, dtype=np.int32) for _ in range(2))
        positions[tokens] = within
        segments[tokens] = np.repeat(nth + 1, self.lengths)
        loss = segments > 0
        if self.mask_continued:
            loss[begins[self.document_starts > 0]] = False
        return positions, segments, loss


@dataclass(frozen=True)
class ShardShape:
    """What a shard's writer has to know before the first sequence comes.

    Attributes:
        num_sequences: sequences that will come.
        sequence_length: tokens of each.
        dtype: of the tokens, little-endian.
    """

    num_sequences: int
    sequence_length: int
    dtype: np.dtype[Any]


Append: TypeAlias = Callable[[SequenceBlock], None]
"""Writes the next sequences. Blocks have `group_rows` sequences, or a multiple, but for the last."""


def group_rows(sequence_length: int) -> int:
    """Sequences in a row group, so that what is written does not depend on the size of the blocks."""
    return max(1, _GROUP_TOKENS // sequence_length)
