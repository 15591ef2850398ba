"""Measure how far the shares of the packed sequences deviate from the mixture's plan, and from its request.

The model. The sequences are divided into blocks of a million tokens, or of a tenth of the whole if that is
less, or of a thousandth if that is more; of at least 64 sequences. The tokens of every source in a block are
compared with those in the same part of the plan: the part between the same numbers of packed tokens from the
beginning. Blocks are whole windows of the shuffle (`tasks.packing.shuffling`), which moves no sequence to
another window. A source's deviation is the largest difference over all blocks, as a fraction of the block's
tokens. A last block of less than half the size is joined to the one before it.

The plan itself may be off its request by a whole document of each source, which is much where documents are
long. So the shares of each block are also compared with those that are asked for there (`request.parquet`).

Tokens that packing leaves out also change the shares of the whole; that change is measured separately.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import MixedSource, RequestTable
from tokmill.tasks.formats.packed.manifest import FarthestBlock, PackedShare
from tokmill.tasks.packing.pieces import Pieces

LIMIT = 0.03
"""A deviation, or a change of a share, above which `tokmill run` warns: 3 percentage points."""

_BLOCK_TOKENS = 1 << 20
_LEAST_BLOCKS = 10
_BLOCK_SEQUENCES = 64
_MOST_BLOCKS = 1000
_MOST_CELLS = 1 << 22
_DIGITS = 6


class Shares:
    """Adds up the tokens per source of each block of sequences.

    Attributes:
        block_sequences: sequences in a block.
    """

    def __init__(self, num_sources: int, sequence_length: int, num_tokens: int, window: int = 1) -> None:
        """Start with empty counts."""
        most = max(1, min(_MOST_BLOCKS, _MOST_CELLS // num_sources))
        wanted = max(min(_BLOCK_TOKENS, -(-num_tokens // _LEAST_BLOCKS)), -(-num_tokens // most))
        size = max(_BLOCK_SEQUENCES, -(-wanted // sequence_length))
        self.block_sequences = -(-size // window) * window
        self._packed = np.zeros((0, num_sources), dtype=np.int64)
        self._planned = np.zeros((0, num_sources), dtype=np.int64)

    def add(self, sources: NDArray[np.uint16], pieces: Pieces) -> None:
        """Count a block of documents.

        Args:
            sources: uint16 [d], the source of each document.
            pieces: their kept pieces.
        """
        if not len(pieces):
            return
        of, block = sources[pieces.document].astype(np.int64), pieces.sequence // self.block_sequences
        self._reserve(int(block[-1]) + 1)
        _add(self._packed, block, of, pieces.length)
        order = np.lexsort((pieces.document_start, pieces.document))
        lengths, of = pieces.length[order], of[order]
        first = int(block[0])
        edges = np.cumsum(np.bincount(block - first, weights=pieces.length)).astype(np.int64)
        # Both orders hold the same tokens, so a block covers the same range of token numbers in both.
        ends = np.cumsum(lengths)
        cuts = np.sort(np.concatenate([ends, edges]), kind="stable")
        piece, part = np.searchsorted(ends, cuts), np.searchsorted(edges, cuts)
        _add(self._planned, first + part, of[piece], np.diff(cuts, prepend=0))

    def _reserve(self, num_blocks: int) -> None:
        missing = num_blocks - len(self._packed)
        if missing > 0:
            room = np.zeros((missing, self._packed.shape[1]), dtype=np.int64)
            self._packed = np.concatenate([self._packed, room])
            self._planned = np.concatenate([self._planned, room])

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
            farthest = self._farthest(packed / sizes, _requested(request, first_position + places))
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


def _requested(request: RequestTable, places: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares that are asked for between each two places of a run: float64 [len(places) - 1, sources]."""
    tokens = np.diff(request.along(places), axis=0)
    shares: NDArray[np.float64] = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1e-9)
    return shares


def _add(
    sums: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64], amounts: NDArray[np.int64]
) -> None:
    """Add amounts to the sums at these rows and columns."""
    first, last = int(np.min(rows)), int(np.max(rows))
    width = sums.shape[1]
    found = np.bincount(
        (rows - first) * width + columns, weights=amounts, minlength=(last + 1 - first) * width
    )
    sums[first : last + 1] += found.astype(np.int64).reshape(-1, width)


def _without_a_short_end(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows, with a last row of less than half the tokens added to the one before it."""
    if len(sums) < 2 or 2 * int(sums[-1].sum()) >= int(sums[-2].sum()):
        return sums
    return np.concatenate([sums[:-2], sums[-2:].sum(axis=0, keepdims=True)])


def warnings(shares: Sequence[PackedShare], strategy: str, window: int | None) -> list[str]:
    """Warnings of shares that deviate by more than `LIMIT`."""
    found = []
    worst = max(shares, key=lambda share: share.deviation)
    if worst.deviation > LIMIT:
        found.append(
            f"pack: in some block of sequences the share of source '{worst.source}' is "
            f"{100 * worst.deviation:.1f} points from the mixture's, by strategy='{strategy}' with "
            f"window={window}; shares are to hold to within {100 * LIMIT:g} points: lower pack.window"
        )
    changed = max(shares, key=lambda share: abs(share.packed_share - share.mixed_share))
    if abs(changed.packed_share - changed.mixed_share) > LIMIT:
        found.append(
            f"pack: source '{changed.source}' has {changed.packed_share:.1%} of the packed tokens, and "
            f"{changed.mixed_share:.1%} of the mixture's: what packing left out was not spread as the "
            "mixture is; use pack.long_documents='split', or a larger pack.sequence_length"
        )
    return found
