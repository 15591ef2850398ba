"""Accounts of every source's documents and tokens when they are packed.

Tokens: in + `fill_in_the_middle` (added) = packed + truncated + dropped. Each document, of which one that is
repeated counts each time, is under exactly one of `ENDS`. The input is taken from the mixture's manifest, not
counted here, so a document that is lost or packed twice is noticed. Padding has an account of its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.stage import NO_SOURCE, Account
from tokmill.tasks.fim.tokens import FIM_TOKENS
from tokmill.tasks.formats.mixture import MixedSource
from tokmill.tasks.packing.pieces import Pieces

ENDS = (
    "packed",  # whole, in one sequence
    "split",  # whole, over several sequences
    "truncated",  # in part; the rest of it is lost
    "dropped:too_long",  # longer than a sequence, where long documents are dropped
    "dropped:last_sequence",  # it lay entirely in the last, partial sequence, which was dropped
)
_PACKED, _SPLIT, _TRUNCATED, _TOO_LONG, _LAST_SEQUENCE, _TWICE = range(len(ENDS) + 1)


class PackedTotals:
    """Adds up, block by block, the ends of each source's documents and their kept tokens."""

    def __init__(self, num_sources: int, sequence_length: int, drops_long: bool) -> None:
        self._length = sequence_length
        self._drops_long = drops_long
        self._documents = np.zeros((num_sources, len(ENDS) + 1), dtype=np.int64)
        self._lost = np.zeros((num_sources, len(ENDS) + 1), dtype=np.int64)
        self._kept = np.zeros(num_sources, dtype=np.int64)
        self._added = np.zeros(num_sources, dtype=np.int64)
        self.num_cut_documents = 0  # in several pieces, though they would have fitted into one sequence
        self.shortest = 1 << 32  # tokens of the shortest document

    def add(self, source: NDArray[np.uint16], lengths: NDArray[np.int64], pieces: Pieces) -> None:
        """Count a block of documents, of which these are the kept pieces."""
        number = len(lengths)
        kept = np.bincount(pieces.document, weights=pieces.document_tokens, minlength=number).astype(np.int64)
        num_pieces = np.bincount(pieces.document, minlength=number)
        is_long = lengths > self._length
        whole = np.where(num_pieces > 1, _SPLIT, _PACKED)
        part = np.where(kept > 0, _TRUNCATED, np.where(is_long & self._drops_long, _TOO_LONG, _LAST_SEQUENCE))
        end = np.select([kept == lengths, kept > lengths], [whole, _TWICE], part)
        place = source.astype(np.int64) * (len(ENDS) + 1) + end
        _add(self._documents, place, None)
        _add(self._lost, place, lengths - kept)
        _add(self._kept, source, kept)
        _add(self._added, source[pieces.document], FIM_TOKENS * (pieces.fim > 0))
        self.num_cut_documents += int(((num_pieces > 1) & ~is_long).sum())
        self.shortest = int(np.min(lengths, initial=self.shortest))

    def num_documents(self, *ends: str) -> int:
        """Number of documents of all sources with these ends; with any end, if none is named."""
        columns = [ENDS.index(end) for end in ends or ENDS]
        return int(self._documents[:, columns].sum())

    @property
    def num_lost_tokens(self) -> int:
        """Number of tokens of all sources that are in no sequence."""
        return int(self._lost.sum())

    def accounts(self, sources: Sequence[MixedSource], num_padding: int) -> list[Account]:
        """Two accounts per source, in documents and in tokens, and one of the padding."""
        accounts = []
        for index, mixed in enumerate(sources):
            documents = dict(zip(ENDS, self._documents[index].tolist(), strict=False))
            lost = dict(zip(ENDS[_TRUNCATED:], self._lost[index, _TRUNCATED:].tolist(), strict=False))
            added = int(self._added[index])
            accounts += [
                Account(
                    source=mixed.source, unit="documents", num_in=mixed.drawn_documents, became=documents
                ),
                Account(
                    source=mixed.source,
                    unit="tokens",
                    num_in=mixed.drawn_tokens,
                    added={"fill_in_the_middle": added} if added else {},
                    became={"packed": int(self._kept[index]) + added, **lost},
                ),
            ]
        padding = {"padding": num_padding}
        return [*accounts, Account(source=NO_SOURCE, unit="tokens", num_in=0, added=padding, became=padding)]


def _add(sums: NDArray[np.int64], places: NDArray[Any], amounts: NDArray[np.int64] | None) -> None:
    """Add amounts (1 each by default) to the sums at these flat indices."""
    counted = np.bincount(places, weights=amounts, minlength=sums.size)
    sums += counted.astype(np.int64).reshape(sums.shape)
