"""Packing strategies: turn blocks of documents, in the mixture's order, into sequences.

    concat                 documents follow each other without a gap and are cut wherever a sequence ends.
                           Nothing is lost, and only the last sequence may be padded.
    greedy                 next fit: a piece goes into the open sequence if it fits, else the sequence is
                           closed (and padded) and the piece opens the next.
    best_fit               takes a window's pieces longest first, and puts each into the sequence that it
                           fills best (Ding et al. 2024, "Fewer Truncations Improve Language Modeling").
    first_fit_decreasing   takes a window's pieces longest first, and puts each into the first sequence
                           that has room (Johnson 1973, "Near-Optimal Bin Packing Algorithms").
    pad                    every piece is a sequence of its own.

Laws. No sequence holds more than its length. With every strategy but `concat` a document that fits into a
sequence is in one piece. The pieces of a sequence are in the order of the documents. `concat`, `greedy` and
`pad` keep the order of the documents, whatever the blocks. A window's sequences come before the next
window's, in an order in which every source keeps its share (`tasks.packing.pieces`).
All are functions of the lengths and, for that order, of the sources alone.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.manifest import WINDOWED, LongDocuments, Strategy
from tokmill.tasks.kernels.bin_packing import (
    Rooms,
    by_sequence,
    fit_best,
    fit_first,
    lay_out,
    longest_first,
    next_fit,
)
from tokmill.tasks.packing.pieces import Pieces, UnplacedPieces, cut_documents, lined_up, spread


class Packer(Protocol):
    """Packs blocks of documents in order; the numbers of sequences continue from block to block."""

    num_closed: int
    """Number of sequences that no later block adds to."""

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents.

        Args:
            lengths: int64 [d], tokens of each document, ≥ 1.
            fim: uint8 [d], the form of each document; 0 if it is not rearranged.
            sources: uint16 [d], the source of each document; decides the order of sequences within a window.
        """
        ...


def packer(strategy: Strategy, sequence_length: int, long_documents: LongDocuments = "split") -> Packer:
    """A new packer; `concat` ignores `long_documents`."""
    if strategy == "concat":
        return Concat(sequence_length)
    if strategy in WINDOWED:
        return Fit(sequence_length, long_documents, best=strategy == "best_fit")
    if strategy == "greedy":
        return Greedy(sequence_length, long_documents)
    return Pad(sequence_length, long_documents)


class Concat:
    """Joins documents end to end and cuts at every multiple of the sequence length."""

    def __init__(self, sequence_length: int) -> None:
        self._length = sequence_length
        self._position = 0
        self.num_closed = 0

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents; `fim` must be zeros, since cuts can be anywhere."""
        ends = self._position + np.cumsum(lengths)
        begins = ends - lengths
        first = begins // self._length
        document, nth = spread((ends - 1) // self._length - first + 1)
        sequence = first[document] + nth
        begin = np.maximum(begins[document], sequence * self._length)
        end = np.minimum(ends[document], (sequence + 1) * self._length)
        self._position = int(ends[-1]) if len(ends) else self._position
        self.num_closed = self._position // self._length
        return Pieces(
            sequence,
            begin - sequence * self._length,
            end - begin,
            document,
            begin - begins[document],
            fim[document],
        )


class Greedy:
    """Next fit; the last sequence stays open for the next block."""

    def __init__(self, sequence_length: int, long_documents: LongDocuments) -> None:
        self._length = sequence_length
        self._long_documents = long_documents
        self._used = 0
        self.num_closed = 0

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents."""
        cut = cut_documents(lengths, self._length, self._long_documents, fim)
        bins, starts = np.empty_like(cut.length), np.empty_like(cut.length)
        self._used = next_fit(cut.length, self._length, self._used, bins, starts)
        sequence = bins + self.num_closed
        self.num_closed = int(sequence[-1]) if len(sequence) else self.num_closed
        return cut.placed(sequence, starts)


class Pad:
    """Every piece is a sequence of its own."""

    def __init__(self, sequence_length: int, long_documents: LongDocuments) -> None:
        self._length = sequence_length
        self._long_documents = long_documents
        self.num_closed = 0

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents."""
        cut = cut_documents(lengths, self._length, self._long_documents, fim)
        sequence = self.num_closed + np.arange(len(cut.length))
        self.num_closed += len(sequence)
        return cut.placed(sequence, np.zeros_like(sequence))


class Fit:
    """Best fit or first fit over one block at a time, longest piece first."""

    def __init__(self, sequence_length: int, long_documents: LongDocuments, *, best: bool) -> None:
        self._length = sequence_length
        self._long_documents = long_documents
        self._best = best
        self.num_closed = 0

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents."""
        cut = cut_documents(lengths, self._length, self._long_documents, fim)
        fit = best_fit if self._best else first_fit_decreasing
        bins = fit(cut.length, self._length)
        ranks = lined_up(cut, bins, sources[cut.document].astype(np.int64), self._length)
        pieces = _laid_out(cut, bins, ranks, self.num_closed)
        self.num_closed = max(self.num_closed, pieces.num_sequences)
        return pieces


def best_fit(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Assign pieces to bins, longest first, each to the bin with the least room that holds it.

    Args:
        lengths: int64 [n], each in [1, capacity].
        capacity: tokens per bin.

    Returns:
        int64 [n], the bin of each piece, numbered from 0 in the order in which they are opened.

    Ties: equally long pieces are taken in order; of bins with equal room, the last one to reach this room is
    used, which does not affect how full the bins become. O(n + capacity) time and memory. Source: Ding et al.
    2024, "Fewer Truncations Improve Language Modeling", Algorithm 1.
    """
    bins = np.empty(len(lengths), dtype=np.int64)
    fit_best(lengths, _longest_first(lengths, capacity), capacity, _rooms(len(lengths), capacity), bins)
    return bins


def first_fit_decreasing(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Assign pieces to bins, longest first, each to the bin of the lowest number that has room for it.

    Arguments and result as in `best_fit`. O(n log n + capacity) time.
    """
    size = 1 << max(len(lengths) - 1, 0).bit_length()
    tree = np.full(2 * size, capacity, dtype=np.int32)
    bins = np.empty(len(lengths), dtype=np.int64)
    fit_first(lengths, _longest_first(lengths, capacity), tree, bins)
    return bins


def _longest_first(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    order = np.empty(len(lengths), dtype=np.int64)
    longest_first(lengths, np.zeros(capacity + 2, dtype=np.int64), order)
    return order


def _rooms(num_pieces: int, capacity: int) -> Rooms:
    """An empty set of bins."""
    sizes = [-(-(capacity + 1) // 64)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 64))
    return Rooms(
        newest=np.full(capacity + 1, -1, dtype=np.int32),
        before=np.full(num_pieces, -1, dtype=np.int32),
        bits=np.zeros(sum(sizes), dtype=np.uint64),
        levels=np.cumsum([0, *sizes], dtype=np.int64),
    )


def _laid_out(cut: UnplacedPieces, bins: NDArray[np.int64], ranks: NDArray[np.int64], first: int) -> Pieces:
    """The pieces in sequences from number `first` on, by the bins' ranks; pieces keep their order."""
    sequence, start, order = (np.empty_like(bins) for _ in range(3))
    lay_out(bins, cut.length, ranks, np.zeros(len(ranks), dtype=np.int64), sequence, start)
    by_sequence(sequence, np.zeros(len(ranks) + 1, dtype=np.int64), order)
    return cut.placed(sequence + first, start).only(order)
