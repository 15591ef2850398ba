"""Cut documents into pieces, in blocks that depend on the mixture alone. Works on lengths only.

A document of more than `sequence_length` tokens is cut into full pieces and a rest, or truncated to one
piece, or dropped; every other one stays whole, unless the strategy is `concat`. Rearranging a document
(`tasks.fim.tokens`) adds three tokens per piece; one that would no longer fit is not rearranged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.tokens import FIM_TOKENS
from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.formats.packed.manifest import LongDocuments

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
    fim: NDArray[np.uint8]  # 0 if the tokens are in the document's order; else a form of `tasks.fim.tokens`

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
