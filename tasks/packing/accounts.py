"""Account for packed documents and tokens, and measure how far the shares of the sources deviate.

The input is taken from the mixture's manifest, so a document that is lost or packed twice is
noticed. The largest difference of a source's tokens in a block of sequences from those in the same stretch of
the plan, as a fraction of the block, is its deviation.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.stage import NO_SOURCE, Account
from tokmill.tasks.fim.rearrangement import FIM_TOKENS
from tokmill.tasks.formats.mixture import MixedSource, RequestTable
from tokmill.tasks.formats.packed.manifest import FarthestBlock, PackedShare
from tokmill.tasks.packing.strategies import Pieces

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


LIMIT = 0.03
"""A deviation, or a change of a share, above which `tokmill run` warns: 3 percentage points."""

_BLOCK_TOKENS = 1 << 20
_LEAST_BLOCKS = 10
_BLOCK_SEQUENCES = 64
_MOST_BLOCKS = 1000
_MOST_CELLS = 1 << 22
_DIGITS = 6


class Shares:
    """Adds up the tokens per source of each block of sequences."""

    def __init__(self, num_sources: int, sequence_length: int, num_tokens: int, window: int = 1) -> None:
        most = max(1, min(_MOST_BLOCKS, _MOST_CELLS // num_sources))
        wanted = max(min(_BLOCK_TOKENS, -(-num_tokens // _LEAST_BLOCKS)), -(-num_tokens // most))
        size = max(_BLOCK_SEQUENCES, -(-wanted // sequence_length))
        self.block_sequences = -(-size // window) * window
        self._packed = np.zeros((0, num_sources), dtype=np.int64)
        self._planned = np.zeros((0, num_sources), dtype=np.int64)

    def add(self, sources: NDArray[np.uint16], pieces: Pieces) -> None:
        """Count a block of documents, of which these are the kept pieces."""
        if not len(pieces):
            return
        of, block = sources[pieces.document].astype(np.int64), pieces.sequence // self.block_sequences
        missing = int(block[-1]) + 1 - len(self._packed)
        if missing > 0:
            room = ((0, missing), (0, 0))
            self._packed, self._planned = np.pad(self._packed, room), np.pad(self._planned, room)
        _add_cells(self._packed, block, of, pieces.length)
        order = np.lexsort((pieces.document_start, pieces.document))
        lengths, of = pieces.length[order], of[order]
        first = int(block[0])
        edges = np.cumsum(np.bincount(block - first, weights=pieces.length)).astype(np.int64)
        # Both orders hold the same tokens, so a block covers the same range of token numbers in both.
        ends = np.cumsum(lengths)
        cuts = np.sort(np.concatenate([ends, edges]), kind="stable")
        piece, part = np.searchsorted(ends, cuts), np.searchsorted(edges, cuts)
        _add_cells(self._planned, first + part, of[piece], np.diff(cuts, prepend=0))

    def measured(
        self, mixed: Sequence[MixedSource], request: RequestTable | None = None, first_position: int = 0
    ) -> tuple[PackedShare, ...]:
        """The measured share and deviation of each source."""
        packed, planned = _without_a_short_end(self._packed), _without_a_short_end(self._planned)
        sizes = np.maximum(packed.sum(axis=1, keepdims=True), 1)
        deviations = np.max(np.abs(packed - planned) / sizes, axis=0, initial=0.0)
        shares = packed.sum(axis=0) / max(int(packed.sum()), 1)
        farthest: Sequence[FarthestBlock | None] = [None] * len(mixed)
        if request is not None:
            num_tokens = sum(source.drawn_tokens for source in mixed)
            places = np.append(0, np.cumsum(packed.sum(axis=1))) / max(int(packed.sum()), 1) * num_tokens
            requested = np.diff(request.along(first_position + places), axis=0)
            requested /= np.maximum(requested.sum(axis=1, keepdims=True), 1e-9)
            farthest = self._farthest(packed / sizes, requested)
        return tuple(
            PackedShare(
                source=source.source,
                mixed_share=round(source.share, _DIGITS),
                packed_share=round(float(share), _DIGITS),
                deviation=round(float(deviation), _DIGITS),
                farthest=block,
            )
            for source, share, deviation, block in zip(mixed, shares, deviations, farthest, strict=True)
        )

    def _farthest(
        self, packed: NDArray[np.float64], requested: NDArray[np.float64]
    ) -> list[FarthestBlock | None]:
        """Of each source, the block in which both shares, float64 [blocks, sources], differ most."""
        return [
            FarthestBlock(
                first_sequence=block * self.block_sequences,
                requested_share=round(float(requested[block, source]), _DIGITS),
                packed_share=round(float(packed[block, source]), _DIGITS),
            )
            for source, block in enumerate(np.argmax(np.abs(packed - requested), axis=0).tolist())
        ]


def _add_cells(
    sums: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64], amounts: NDArray[np.int64]
) -> None:
    first, stop, width = int(np.min(rows)), int(np.max(rows)) + 1, sums.shape[1]
    places = (rows - first) * width + columns
    added = np.bincount(places, weights=amounts, minlength=(stop - first) * width)
    sums[first:stop] += added.astype(np.int64).reshape(-1, width)


def _without_a_short_end(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows, with a last row of less than half the tokens added to the one before it."""
    if len(sums) < 2 or 2 * int(sums[-1].sum()) >= int(sums[-2].sum()):
        return sums
    return np.concatenate([sums[:-2], sums[-2:].sum(axis=0, keepdims=True)])


def warnings(shares: Sequence[PackedShare], strategy: str, window: int | None) -> list[str]:
    """Warnings of shares that deviate by more than `LIMIT`."""
    messages = []
    worst = max(shares, key=lambda share: share.deviation)
    if worst.deviation > LIMIT:
        messages.append(
            f"pack: in some block of sequences the share of source '{worst.source}' is "
            f"{100 * worst.deviation:.1f} points from the mixture's, by strategy='{strategy}' with "
            f"window={window}; shares are to hold to within {100 * LIMIT:g} points: lower pack.window"
        )
    changed = max(shares, key=lambda share: abs(share.packed_share - share.mixed_share))
    if abs(changed.packed_share - changed.mixed_share) > LIMIT:
        messages.append(
            f"pack: source '{changed.source}' has {changed.packed_share:.1%} of the packed tokens, and "
            f"{changed.mixed_share:.1%} of the mixture's: what packing left out was not spread as the "
            "mixture is; use pack.long_documents='split', or a larger pack.sequence_length"
        )
    return messages
