"""Accounts of every source's documents and tokens when they are packed.

Tokens: in + rearranged = packed + truncated + dropped, where `fill_in_the_middle` counts the tokens that
rearranging adds. Each document counts under exactly one of these ends:

    packed                  whole, in one sequence
    split                   whole, over several sequences
    truncated               in part; the rest of it is lost
    dropped:too_long        longer than a sequence, where long documents are dropped
    dropped:last_sequence   it lay entirely in the last, partial sequence, which was dropped

A document that the mixture repeats counts each time. The input is taken from the mixture's manifest, not
counted here, so a document that is lost or packed twice is noticed. Padding belongs to no source: it has
an account of its own, under the source `NO_SOURCE`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.stage import NO_SOURCE, Account
from tokmill.tasks.fim.tokens import FIM_TOKENS
from tokmill.tasks.formats.mixture import MixedSource
from tokmill.tasks.packing.pieces import Pieces

ENDS = ("packed", "split", "truncated", "dropped:too_long", "dropped:last_sequence")
_PACKED, _SPLIT, _TRUNCATED, _TOO_LONG, _LAST_SEQUENCE = range(len(ENDS))
_NO_END = len(ENDS)


def endings(
    lengths: NDArray[np.int64], pieces: Pieces, sequence_length: int, drops_long: bool
) -> NDArray[np.int64]:
    """The end of each document, as an index into `ENDS`: int64 [d].

    A document that was packed more than once has none; its index is `len(ENDS)`.

    Args:
        lengths: int64 [d], tokens of each document.
        pieces: all kept pieces of these documents.
        sequence_length: tokens per sequence.
        drops_long: whether a document of more than `sequence_length` tokens is dropped whole.
    """
    kept = kept_tokens(lengths, pieces)
    num_pieces = np.bincount(pieces.document, minlength=len(lengths))
    dropped = np.where((lengths > sequence_length) & drops_long, _TOO_LONG, _LAST_SEQUENCE)
    whole = np.where(num_pieces > 1, _SPLIT, _PACKED)
    part = np.where(kept > lengths, _NO_END, np.where(kept > 0, _TRUNCATED, dropped))
    return np.where(kept == lengths, whole, part)


def kept_tokens(lengths: NDArray[np.int64], pieces: Pieces) -> NDArray[np.int64]:
    """Tokens of each document that are in a sequence: int64 [d]."""
    return np.bincount(pieces.document, weights=pieces.document_tokens, minlength=len(lengths)).astype(
        np.int64
    )


class PackedTotals:
    """Adds up, block by block, the ends of each source's documents and their kept tokens."""

    def __init__(self, num_sources: int, sequence_length: int, drops_long: bool) -> None:
        self._length = sequence_length
        self._drops_long = drops_long
        self._documents = np.zeros((num_sources, len(ENDS) + 1), dtype=np.int64)
        self._lost = np.zeros((num_sources, len(ENDS) + 1), dtype=np.int64)
        self._kept = np.zeros(num_sources, dtype=np.int64)
        self._added = np.zeros(num_sources, dtype=np.int64)
        self.num_cut_documents = 0
        """Documents split into several pieces that would have fitted into one sequence."""

    def add(self, source: NDArray[np.uint16], lengths: NDArray[np.int64], pieces: Pieces) -> None:
        """Count a block of documents.

        Args:
            source: uint16 [d], index of each document's source.
            lengths: int64 [d], tokens of each document.
            pieces: their kept pieces.
        """
        ended = endings(lengths, pieces, self._length, self._drops_long)
        kept = kept_tokens(lengths, pieces)
        place = source.astype(np.int64) * (len(ENDS) + 1) + ended
        _add(self._documents, place, None)
        _add(self._lost, place, lengths - kept)
        _add(self._kept, source, kept)
        _add(self._added, source[pieces.document], FIM_TOKENS * (pieces.fim > 0))
        num_pieces = np.bincount(pieces.document, minlength=len(lengths))
        self.num_cut_documents += int(((num_pieces > 1) & (lengths <= self._length)).sum())

    def num_documents(self, *ends: str) -> int:
        """Number of documents of all sources with these ends; with any end, if none is named."""
        columns = [ENDS.index(end) for end in ends or ENDS]
        return int(self._documents[:, columns].sum())

    @property
    def num_lost_tokens(self) -> int:
        """Number of tokens of all sources that are in no sequence."""
        return int(self._lost.sum())

    @property
    def num_fim_tokens(self) -> int:
        """Number of tokens that rearranging added."""
        return int(self._added.sum())

    def accounts(self, sources: Sequence[MixedSource], num_padding: int) -> list[Account]:
        """Two accounts per source, in documents and in tokens, and one of the padding."""
        accounts = [account for index, mixed in enumerate(sources) for account in self._of(index, mixed)]
        padding = {"padding": num_padding}
        return [*accounts, Account(source=NO_SOURCE, unit="tokens", num_in=0, added=padding, became=padding)]

    def _of(self, index: int, mixed: MixedSource) -> list[Account]:
        documents = dict(zip(ENDS, self._documents[index].tolist(), strict=False))
        lost = dict(zip(ENDS, self._lost[index].tolist(), strict=False))
        tokens = {end: lost[end] for end in ENDS[_TRUNCATED:]}
        added = int(self._added[index])
        return [
            Account(source=mixed.source, unit="documents", num_in=mixed.drawn_documents, became=documents),
            Account(
                source=mixed.source,
                unit="tokens",
                num_in=mixed.drawn_tokens,
                added={"fill_in_the_middle": added} if added else {},
                became={"packed": int(self._kept[index]) + added, **tokens},
            ),
        ]


def _add(sums: NDArray[np.int64], places: NDArray[Any], amounts: NDArray[np.int64] | None) -> None:
    """Add amounts (1 each by default) to the sums at these flat indices."""
    found = np.bincount(places, weights=amounts, minlength=sums.size)
    sums += found.astype(np.int64).reshape(sums.shape)
