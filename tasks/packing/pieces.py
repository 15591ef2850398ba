"""Cut documents into pieces, each with a place in a sequence. Works on lengths only, not on tokens.

A document of more than `sequence_length` tokens is cut into full pieces and a rest, or truncated to one
piece, or dropped. Every other document stays whole, unless the strategy is `concat`. Rearranging a document
to fill in its middle (`tasks.fim.tokens`) adds three tokens per piece; a document that would no longer fit is
not rearranged.

Divide a mixture's documents into blocks of bounded size, independent of the batches that are read.

A block ends after `window` documents, or earlier if long documents make up a million pieces. So memory does
not grow with the corpus. The bounds of blocks depend on the mixture alone.

Order the sequences of a window so that the mixture's shares also hold within the window.

Packing a window puts many short documents into some sequences, and a single long one into others. Ordered by
their first documents, the sequences of short documents would all come first, and so would the sources of
these documents. So two rules decide the order.

    place       A sequence has the place of one of its tokens in the plan. The token is chosen
                evenly: sequence k, in the order in which they were opened, takes its token at the fractional
                part of k × φ. So a kind of sequences is as dense along the plan as its tokens are there. (The
                mean place of its tokens would put every sequence of many documents in the middle.)
    line up     Of the next `LOOK_AHEAD` sequences by place, the one follows that brings the sources' tokens
                nearest to those of the plan at that point (`tasks.kernels.alignment`). No sequence is
                overtaken by more than `LONGEST_WAIT` others.

Both are functions of lengths and sources alone. docs/packing.md has measurements of these and of other
orders.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.tokens import FIM_TOKENS
from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.formats.packed.manifest import LongDocuments
from tokmill.tasks.kernels.alignment import InPlan, Parts, Sums, Waiting, line_up
from tokmill.tasks.kernels.bin_packing import by_sequence

_MOST_PIECES = 1 << 20
SHORTEST_FIM = 16
"""Pieces of fewer tokens are never rearranged: there is too little to fill in."""
LOOK_AHEAD = 256
LONGEST_WAIT = 8 * LOOK_AHEAD
FRACTION = (5**0.5 - 1) / 2
"""The golden ratio's fraction, whose multiples are spread evenly."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio's fraction of 2^64


def blocks(batches: Iterable[Plan], window: int, sequence_length: int) -> Iterator[Plan]:
    """Divide a plan into blocks."""
    held: Plan | None = None
    for batch in batches:
        held = batch if held is None else _joined(held, batch)
        start = 0
        while stop := _block_end(held.num_tokens, start, window, sequence_length):
            yield _rows(held, start, stop)
            start = stop
        held = _rows(held, start, len(held))
    if held is not None and len(held):
        yield held


def _block_end(num_tokens: NDArray[np.uint32], start: int, window: int, sequence_length: int) -> int:
    """The end of the block that begins at `start`; 0 if later documents may belong to it."""
    counts = -(-num_tokens[start : start + window].astype(np.int64) // sequence_length)
    size = int(np.searchsorted(np.cumsum(counts), _MOST_PIECES)) + 1
    whole = size <= len(counts) or len(counts) == window
    return start + min(size, len(counts)) if whole and len(counts) else 0


def _rows(plan: Plan, start: int, stop: int) -> Plan:
    return Plan(**{field.name: getattr(plan, field.name)[start:stop] for field in fields(plan)})


def _joined(first: Plan, second: Plan) -> Plan:
    return Plan(
        **{
            field.name: np.concatenate([getattr(first, field.name), getattr(second, field.name)])
            for field in fields(first)
        }
    )


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


def lined_up(
    cut: UnplacedPieces, bins: NDArray[np.int64], source: NDArray[np.int64], capacity: int
) -> NDArray[np.int64]:
    """The position of each bin among the sequences of its window.

    Args:
        cut: the window's pieces, in the plan's order.
        bins: int64 [n], the bin of each.
        source: int64 [n], the source of each piece.
        capacity: tokens of a sequence; below 2^32.

    Returns:
        int64 [number of bins], a permutation.
    """
    num_bins = int(np.max(bins, initial=-1)) + 1
    order, counts = np.empty_like(bins), np.zeros(num_bins + 1, dtype=np.int64)
    by_sequence(bins, counts, order)
    by_place = np.argsort(_places(cut.length, order, counts[:num_bins]), kind="stable")
    ranks = np.empty(num_bins, dtype=np.int64)
    ranks[by_place] = np.arange(num_bins)
    if num_bins < 2 or int(np.min(source)) == int(np.max(source)):
        return ranks
    plan = InPlan(np.cumsum(cut.length), source)
    lined = line_up_sources(cut.length, ranks[bins], source, plan, capacity, LOOK_AHEAD)
    ranks[by_place[lined]] = np.arange(num_bins)
    return ranks


def _places(
    lengths: NDArray[np.int64], order: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The place in the plan of the chosen token of each bin: int64 [number of bins]."""
    begins = (np.cumsum(lengths) - lengths)[order]
    sums = np.concatenate([[0], np.cumsum(lengths[order])])
    firsts = np.concatenate([[0], ends[:-1]])
    filled = (sums[ends] - sums[firsts]).astype(np.uint64)
    fractions = (np.arange(len(ends), dtype=np.uint64) * _GOLDEN) >> np.uint64(32)
    chosen = sums[firsts] + (fractions * filled >> np.uint64(32)).astype(np.int64)
    piece = np.searchsorted(sums, chosen, side="right") - 1
    places: NDArray[np.int64] = begins[piece] + chosen - sums[piece]
    return places


def line_up_sources(
    lengths: NDArray[np.int64],
    sequence: NDArray[np.int64],
    source: NDArray[np.int64],
    plan: InPlan,
    capacity: int,
    look_ahead: int,
) -> NDArray[np.int64]:
    """Order sequences so that the tokens of each source follow a plan: int64 [number of sequences].

    Args:
        lengths: int64 [n], lengths of the pieces.
        sequence: int64 [n], the sequence of each piece, numbered in the order in which they arrive.
        source: int64 [n], the source of each piece.
        plan: the same tokens in the order to follow.
        capacity: tokens of a sequence.
        look_ahead: number of waiting sequences among which the next one is chosen.
    """
    num_sources = int(np.max(source)) + 1
    parts, which = np.unique(sequence * num_sources + source, return_inverse=True)
    tokens = np.zeros(len(parts), dtype=np.int64)
    np.add.at(tokens, which, lengths)
    num_sequences = int(np.max(sequence)) + 1
    lined = np.empty(num_sequences, dtype=np.int64)
    line_up(
        Parts(
            np.searchsorted(parts, np.arange(num_sequences + 1) * num_sources), parts % num_sources, tokens
        ),
        plan,
        capacity,
        LONGEST_WAIT,
        Waiting(*(np.empty(look_ahead, dtype=np.int64) for _ in range(2))),
        Sums(*(np.zeros(num_sources) for _ in range(2))),
        lined,
    )
    return lined
