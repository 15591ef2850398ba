"""Cut documents into pieces, each with a place in a sequence. Works on lengths only, not on tokens.

A document of more than `sequence_length` tokens is cut into full pieces and a rest, or truncated to one
piece, or dropped. Every other document stays whole, unless the strategy is `concat`. Rearranging a document
to fill in its middle (`tasks.fim.tokens`) adds three tokens per piece; a document that would no longer fit is
not rearranged.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.tokens import FIM_TOKENS
from tokmill.tasks.formats.packed.figures import LongDocuments

SHORTEST_FIM = 16
"""Pieces of fewer tokens are never rearranged: there is too little to fill in."""


@dataclass(frozen=True)
class Pieces:
    """Pieces in order of sequence, then of start; all arrays have the same length p.

    Attributes:
        sequence: int64, number of the sequence, from 0 without gaps.
        start: int64, token of the sequence at which the piece starts.
        length: int64, tokens, including added ones; at least 1.
        document: int64, index of the document.
        document_start: int64, token of the document at which the piece starts.
        fim: uint8, 0 if the tokens are in the document's order; else a form of `tasks.fim.tokens`.
    """

    sequence: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    document_start: NDArray[np.int64]
    fim: NDArray[np.uint8]

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


@dataclass(frozen=True)
class UnplacedPieces:
    """Pieces that have no place yet, in the order of the documents; see `Pieces` for the arrays."""

    length: NDArray[np.int64]
    document: NDArray[np.int64]
    document_start: NDArray[np.int64]
    fim: NDArray[np.uint8]

    def placed(self, sequence: NDArray[np.int64], start: NDArray[np.int64]) -> Pieces:
        """The same pieces at these places."""
        return Pieces(sequence, start, self.length, self.document, self.document_start, self.fim)


def cut_documents(
    lengths: NDArray[np.int64], sequence_length: int, long_documents: LongDocuments, fim: NDArray[np.uint8]
) -> UnplacedPieces:
    """Cut documents that are longer than a sequence.

    Args:
        lengths: int64 [d], tokens of each document, ≥ 1.
        sequence_length: ≥ 1; more than `FIM_TOKENS` if any document is rearranged.
        long_documents: how to treat documents of more than `sequence_length` tokens.
        fim: uint8 [d], the form of each document; 0 if it is not rearranged.
    """
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
    return UnplacedPieces(length + FIM_TOKENS * (form > 0), document, document_start, form)


def spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each index k `counts[k]` times, and the numbers 0, 1, … for each k."""
    index = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, nth
