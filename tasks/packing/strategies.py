"""Cut documents into pieces, and pack these into sequences. Works on lengths only; docs/packing.md says how.

'best_fit' is of Ding et al. 2024, "Fewer Truncations Improve Language Modeling", 'first_fit_decreasing' of
Johnson 1973. The pieces of a sequence are in the order of the documents, and so are sequences.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.rearrangement import FIM_TOKENS
from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.formats.packed.manifest import LongDocuments, Strategy
from tokmill.tasks.kernels.bin_packing import Rooms, fit_best, fit_first, next_fit
from tokmill.tasks.kernels.radix import order_of
from tokmill.tasks.packing.order import lined_up

_MOST_PIECES = 1 << 20
SHORTEST_FIM = 16
"""Pieces of fewer tokens are never rearranged: there is too little to fill in."""


def blocks(batches: Iterable[Plan], window: int, sequence_length: int) -> Iterator[Plan]:
    """Divide a plan into blocks of `window` documents, or fewer if long ones make up a million pieces."""
    held = Plan.joined([])
    for batch in batches:
        held = Plan.joined([held, batch])
        start = 0
        while stop := _block_end(held.num_tokens, start, window, sequence_length):
            yield held.rows(start, stop)
            start = stop
        held = held.rows(start, len(held))
    if len(held):
        yield held


def _block_end(num_tokens: NDArray[np.uint32], start: int, window: int, sequence_length: int) -> int:
    """The end of the block that begins at `start`; 0 if later documents may belong to it."""
    counts = -(-num_tokens[start : start + window].astype(np.int64) // sequence_length)
    size = int(np.searchsorted(np.cumsum(counts), _MOST_PIECES)) + 1
    whole = size <= len(counts) or len(counts) == window
    return start + min(size, len(counts)) if whole and len(counts) else 0


@dataclass(frozen=True)
class Pieces:
    """Pieces in order of sequence, then of start, or of the documents while they have no place; [p] each."""

    sequence: NDArray[np.int64]  # number of the sequence, from 0 without gaps
    start: NDArray[np.int64]  # token of the sequence at which the piece starts
    length: NDArray[np.int64]  # tokens, including added ones; at least 1
    document: NDArray[np.int64]  # index of the document
    document_start: NDArray[np.int64]  # token of the document at which the piece starts
    fim: NDArray[np.uint8]  # 0 for the order of the document; else a form of `tasks.fim.rearrangement`

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def num_sequences(self) -> int:
        """Number of sequences, up to the last one with a piece."""
        return int(self.sequence[-1]) + 1 if len(self) else 0

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces."""
        return int(self.length.sum())

    @property
    def document_tokens(self) -> NDArray[np.int64]:
        """Tokens of the document in each piece: its length less the added tokens."""
        return self.length - FIM_TOKENS * (self.fim > 0)

    def only(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> "Pieces":
        """Select pieces by a mask, bool [p], or by indices, in their order."""
        return Pieces(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


def cut_documents(
    lengths: NDArray[np.int64], sequence_length: int, long_documents: LongDocuments, fim: NDArray[np.uint8]
) -> Pieces:
    """Cut documents of `lengths`, each at least 1, in the forms `fim`; the pieces' places are 0 yet."""
    just_fits = (lengths <= sequence_length) & (lengths + FIM_TOKENS > sequence_length)
    form = np.where(just_fits, 0, fim).astype(np.uint8)
    room = sequence_length - FIM_TOKENS * (form > 0)
    counts = -(-lengths // room)
    if long_documents == "truncate":
        counts = np.minimum(counts, 1)
    elif long_documents == "drop":
        counts = np.where(lengths > sequence_length, 0, counts)
    document, nth = spread(counts)
    document_start = nth * room[document]
    length = np.minimum(lengths[document] - document_start, room[document])
    form = np.where(length >= SHORTEST_FIM, form[document], 0).astype(np.uint8)
    nowhere = np.zeros_like(document)
    return Pieces(nowhere, nowhere, length + FIM_TOKENS * (form > 0), document, document_start, form)


def spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each index k `counts[k]` times, and the numbers 0, 1, … for each k."""
    index = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, nth


class Packer:
    """Packs blocks of documents in order; the numbers of sequences continue from block to block."""

    def __init__(
        self, strategy: Strategy, sequence_length: int, long_documents: LongDocuments = "split"
    ) -> None:
        self._strategy = strategy
        self._length = sequence_length
        self._long_documents = long_documents
        self._used = 0  # tokens in the open sequence
        self.num_closed = 0  # sequences that no later block adds to

    def pack(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8], sources: NDArray[np.uint16]) -> Pieces:
        """Pack the next documents, of lengths ≥ 1, in these forms; a window is ordered by its sources."""
        if self._strategy == "concat":
            return self._joined(lengths, fim)
        cut = cut_documents(lengths, self._length, self._long_documents, fim)
        if self._strategy == "pad":
            sequence = self.num_closed + np.arange(len(cut))
            self.num_closed += len(cut)
            return replace(cut, sequence=sequence)
        if self._strategy == "greedy":
            bins, starts = np.empty_like(cut.length), np.empty_like(cut.length)
            self._used = next_fit(cut.length, self._length, self._used, bins, starts)
            sequence = bins + self.num_closed
            self.num_closed = int(sequence[-1]) if len(sequence) else self.num_closed
            return replace(cut, sequence=sequence, start=starts)
        bins = fit(cut.length, self._length, best=self._strategy == "best_fit")
        ranks = lined_up(cut.length, bins, sources[cut.document].astype(np.int64), self._length)
        pieces = _laid_out(replace(cut, sequence=self.num_closed + ranks[bins]))
        self.num_closed = max(self.num_closed, pieces.num_sequences)
        return pieces

    def _joined(self, lengths: NDArray[np.int64], fim: NDArray[np.uint8]) -> Pieces:
        position = self.num_closed * self._length + self._used
        ends = position + np.cumsum(lengths)
        begins = ends - lengths
        first = begins // self._length
        document, nth = spread((ends - 1) // self._length - first + 1)
        sequence = first[document] + nth
        begin = np.maximum(begins[document], sequence * self._length)
        end = np.minimum(ends[document], (sequence + 1) * self._length)
        self.num_closed, self._used = divmod(int(ends[-1]) if len(ends) else position, self._length)
        start, document_start = begin - sequence * self._length, begin - begins[document]
        return Pieces(sequence, start, end - begin, document, document_start, fim[document])


def fit(lengths: NDArray[np.int64], capacity: int, *, best: bool) -> NDArray[np.int64]:
    """Assign pieces to bins, longest first, each to the one with the least room that holds it, or the first.

    Returns the bin of each piece, [n], numbered from 0 in the order in which they are opened. Equally long
    pieces are taken in order; of bins with equal room the last one to reach it is used, which does not affect
    how full the bins become. O(n + capacity) time and memory, or O(n log n).
    """
    order = order_of((capacity - lengths).astype(np.uint64)).astype(np.int64)
    bins = np.empty(len(lengths), dtype=np.int64)
    if best:
        fit_best(lengths, order, capacity, Rooms.empty(len(lengths), capacity), bins)
    else:
        size = 1 << max(len(lengths) - 1, 0).bit_length()
        fit_first(lengths, order, np.full(2 * size, capacity, dtype=np.int32), bins)
    return bins


def _laid_out(pieces: Pieces) -> Pieces:
    """The pieces ordered by sequence and laid end to end in it; those of a sequence keep their order."""
    ordered = pieces.only(order_of(pieces.sequence.astype(np.uint64)).astype(np.int64))
    begins = np.cumsum(ordered.length) - ordered.length
    opens = np.diff(ordered.sequence, prepend=-1) > 0
    return replace(ordered, start=begins - np.maximum.accumulate(np.where(opens, begins, 0)))
