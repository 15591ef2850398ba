"""Where every document goes: cut into pieces, each with a place in a sequence. Lengths only, no tokens.

    concat   the documents follow each other without a gap and are cut wherever a sequence ends. Nothing is
             lost, and only the last sequence may be padded.
    greedy   next fit: a piece goes into the open sequence if it fits, else the sequence is closed (and
             padded) and the piece opens the next. Documents longer than a sequence are first split into full
             pieces and a rest, or truncated to one sequence, or dropped.

Laws. Pieces are in the order of the documents, and no sequence holds more than its length. Both strategies
are functions of the lengths alone.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Strategy: TypeAlias = Literal["concat", "greedy"]
LongDocuments: TypeAlias = Literal["split", "truncate", "drop"]


@dataclass(frozen=True)
class Pieces:
    """Pieces in order of sequence, then of place in it; all arrays are int64 [p].

    Attributes:
        sequence: the sequence, counted from 0 without gaps.
        start: the piece's place in the sequence, in tokens.
        length: tokens; at least 1.
        document: index of the document it is of.
        document_start: where in the document it starts, in tokens.
    """

    sequence: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    document_start: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def num_sequences(self) -> int:
        """Sequences that hold at least one piece."""
        return int(self.sequence[-1]) + 1 if len(self) else 0

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces."""
        return int(self.length.sum())

    def only(self, keep: NDArray[np.bool_]) -> "Pieces":
        """The pieces for which `keep`, bool [p], is true."""
        return Pieces(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


def concat(lengths: NDArray[np.int64], sequence_length: int) -> Pieces:
    """Lay documents end to end and cut at every multiple of `sequence_length`.

    Args:
        lengths: int64 [d], tokens of each document, ≥ 1.
        sequence_length: ≥ 1.

    The last sequence may hold fewer tokens than the others.
    """
    ends = np.cumsum(lengths)
    begins = ends - lengths
    first = begins // sequence_length
    document, nth = _spread((ends - 1) // sequence_length - first + 1)
    sequence = first[document] + nth
    begin = np.maximum(begins[document], sequence * sequence_length)
    end = np.minimum(ends[document], (sequence + 1) * sequence_length)
    return Pieces(
        sequence, begin - sequence * sequence_length, end - begin, document, begin - begins[document]
    )


def greedy(lengths: NDArray[np.int64], sequence_length: int, long_documents: LongDocuments) -> Pieces:
    """Next fit over whole documents; documents longer than a sequence are split, truncated or dropped.

    Args:
        lengths: int64 [d], tokens of each document, ≥ 1.
        sequence_length: ≥ 1.
        long_documents: what becomes of documents of more than `sequence_length` tokens.
    """
    counts = -(-lengths // sequence_length)
    if long_documents == "truncate":
        counts = np.minimum(counts, 1)
    elif long_documents == "drop":
        counts = np.where(lengths > sequence_length, 0, counts)
    document, nth = _spread(counts)
    document_start = nth * sequence_length
    length = np.minimum(lengths[document] - document_start, sequence_length)
    sequence, start = _next_fit(length, sequence_length)
    return Pieces(sequence, start, length, document, document_start)


def _spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Index k repeated `counts[k]` times, and beside it 0, 1, … for each k."""
    index = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, nth


def _next_fit(lengths: NDArray[np.int64], capacity: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bin of each item and its place there; every length is in [1, capacity].

    For every item at once a binary search finds where a bin that it opened would end; then the bins that
    really are opened are a walk along these jumps, one step a bin.
    """
    sums = np.concatenate([[0], np.cumsum(lengths)])
    jumps = (np.searchsorted(sums, sums[:-1] + capacity, side="right") - 1).data
    openers = []
    item = 0
    while item < len(lengths):
        openers.append(item)
        item = jumps[item]
    first = np.array(openers, dtype=np.int64)
    bins = np.repeat(np.arange(len(first)), np.diff(first, append=len(lengths)))
    return bins, sums[:-1] - sums[first[bins]]
