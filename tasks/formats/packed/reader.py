"""Packed sequences: one interface to all formats, and what a sequence says of its tokens.

`cu_seqlens` has the bounds of a sequence's pieces: piece k is [cu_seqlens[k], cu_seqlens[k + 1]), and padding
begins at the last bound. `segment_ids` numbers pieces from 1 and is 0 on padding. `position_ids` starts at 0
with every piece, and is 0 on padding. `document_starts` is the number of tokens of its document before a
piece, in other sequences; if it is not 0, the piece is a continued one.

`loss_mask[i]` tells whether the prediction *of* token i counts: it is false on padding, and on the first
token of every piece, which no token of its piece predicts. `labels[i]` is token i itself where that is true,
and `IGNORED_LABEL` elsewhere. Neither is shifted: what a model says at i is compared with i + 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.masks import document_mask
from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.formats.packed.shard_format import IGNORED_LABEL, PackedShard, SequenceBlock, open_shard


@dataclass(frozen=True, eq=False)
class Sequence:
    """One packed sequence of L tokens, including padding."""

    input_ids: NDArray[Any]  # uint16 | uint32 [L]; read-only if it is a view of a memory map
    cu_seqlens: NDArray[np.int32]  # int32 [pieces + 1], from 0 to the number of tokens without padding
    # int64 [pieces], token of its document at which each piece starts; None if the format lacks them
    document_starts: NDArray[np.int64] | None = None

    @cached_property
    def _per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        lengths = np.diff(self.cu_seqlens).astype(np.int64)
        return SequenceBlock(self.input_ids[None], np.array([0, len(lengths)]), lengths, lengths).per_token()

    @property
    def segment_ids(self) -> NDArray[np.int32]:
        """The number of each token's piece, from 1; 0 on padding. int32 [L]."""
        return self._per_token[1]

    @property
    def position_ids(self) -> NDArray[np.int32]:
        """The position of each token in its piece, from 0; 0 on padding. int32 [L]."""
        return self._per_token[0]

    @property
    def loss_mask(self) -> NDArray[np.bool_]:
        """Whether the prediction of each token counts: bool [L]; see the module."""
        return self._per_token[2]

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The tokens whose prediction counts, and -100 elsewhere: int64 [L], not shifted; see the module."""
        return np.where(self.loss_mask, self.input_ids.astype(np.int64), IGNORED_LABEL)

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are not padding."""
        return int(self.cu_seqlens[-1])

    def document_mask(self) -> NDArray[np.bool_]:
        """The attention mask: bool [L, L], row = query, column = key; see `tasks.formats.packed.masks`."""
        return document_mask(self.segment_ids)


@dataclass(frozen=True)
class Piece:
    """A run of tokens of one document in one sequence, and its origin."""

    start: int  # token of the sequence at which it starts
    length: int
    source: str  # name of the source
    shard: int  # index of the encoded shard, and of the corpus shard, among that source's shards
    document: int  # position in the encoded shard
    ordinal: int  # the document's row in the corpus shard
    document_start: int  # token of the document at which it starts
    epoch: int  # number of the pass through the source, from 0
    # 0 if the tokens are [document_start, document_start + length) of the document; 1 or 2 if they are
    # rearranged, including three added tokens: see `tasks.fim.rearrangement`
    fim: int = 0

    @property
    def num_document_tokens(self) -> int:
        """Number of the document's tokens in the piece."""
        return self.length - 3 if self.fim else self.length


class PackedReader:
    """Random access to the sequences of a packed artifact: `len(reader)`, `reader[i]`, iteration.

    It can be shared by threads, and pickled to other processes, where it opens its files again. Files that
    are missing, broken, or contradict each other raise StoreError.

    Attributes:
        manifest: the content of `packed.json`.
    """

    def __init__(self, path: Path, manifest: PackedManifest) -> None:
        self.manifest = manifest
        self._path = path
        self._firsts = manifest.firsts
        self._shard = lru_cache(maxsize=None)(self._open_shard)
        self.piece_rows = lru_cache(maxsize=4)(self._open_pieces)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open the artifact in the directory `path`; shards are opened on first use."""
        folder = path if isinstance(path, Path) else Path(path)
        return cls(folder, PackedManifest.open(folder))

    def __reduce__(self) -> tuple[Callable[[Path], "PackedReader"], tuple[Path]]:
        return PackedReader.open, (self._path,)

    def __len__(self) -> int:
        return self.manifest.num_sequences

    def __getitem__(self, index: int) -> Sequence:
        """Sequence `index`; negative ones count from the end. IndexError if there is none."""
        shard, row = self.place(index)
        opened = self._shard(shard)
        return Sequence(opened.tokens(row), opened.cu_seqlens(row), opened.document_starts(row))

    def __iter__(self) -> Iterator[Sequence]:
        return (self[index] for index in range(len(self)))

    def at_length(self, sequence_length: int) -> "JoinedReader":
        """Read the packing at a multiple of its sequence length; see `JoinedReader`."""
        return JoinedReader(self, sequence_length)

    def document_mask(self, index: int) -> NDArray[np.bool_]:
        """The attention mask of sequence `index`; see `Sequence.document_mask`."""
        return self[index].document_mask()

    def provenance(self, index: int) -> list[Piece]:
        """The pieces of sequence `index`, in order."""
        shard, row = self.place(index)
        sources = self.manifest.sources
        names = [field.name for field in fields(Piece) if field.name != "source"]
        return [
            Piece(source=sources[piece["source"]], **{name: piece[name] for name in names})
            for piece in self.piece_rows(shard).rows(row)
        ]

    def place(self, index: int) -> tuple[int, int]:
        """The position of a sequence's shard in the manifest, and its row in the shard."""
        wanted = index + len(self) if index < 0 else index
        if not 0 <= wanted < len(self):
            raise IndexError(f"sequence {index}: the artifact has {len(self)} sequences")
        shard = int(np.searchsorted(self._firsts, wanted, side="right")) - 1
        return shard, wanted - int(self._firsts[shard])

    def _open_shard(self, position: int) -> PackedShard:
        return open_shard(self._path, self.manifest.shards[position].index, self.manifest)

    def _open_pieces(self, position: int) -> PieceRows:
        """The table of pieces of the shard at `position` in the manifest."""
        return PieceRows.open(self._path, self.manifest.shards[position].index, self.manifest)


class JoinedReader:
    """A packing at a multiple of its length: sequences of 2,048 tokens as sequences of 4,096 or 8,192.

    Neighbouring sequences are joined end to end, with all padding at the end. A piece that continues in the
    next sequence is joined with its rest. So long documents are cut less often, or not at all. Nothing is
    written.

    Args:
        reader: reader of the packing.
        sequence_length: tokens per sequence, including padding; a multiple of the packing's own.

    Raises:
        PackingError: it is not a multiple.
    """

    def __init__(self, reader: PackedReader, sequence_length: int) -> None:
        own = reader.manifest.sequence_length
        if sequence_length < own or sequence_length % own:
            raise PackingError(
                f"packed: sequence_length={sequence_length} must be a multiple of the packing's own {own}; "
                f"use e.g. {2 * own}, or pack at another length"
            )
        self.sequence_length = sequence_length
        self._reader = reader
        self._times = sequence_length // own

    def __len__(self) -> int:
        return (len(self._reader) + self._times - 1) // self._times

    def __getitem__(self, index: int) -> Sequence:
        """Sequence `index`; negative ones count from the end. The last one may join fewer sequences."""
        wanted = index + len(self) if index < 0 else index
        if not 0 <= wanted < len(self):
            raise IndexError(f"sequence {index}: there are {len(self)} of {self.sequence_length} tokens")
        first, manifest = wanted * self._times, self._reader.manifest
        tokens = np.full(self.sequence_length, manifest.pad_id, dtype=np.dtype(manifest.dtype))
        bounds, starts, used = [np.zeros(1, dtype=np.int64)], [], 0
        before: list[Piece] = []
        for number in range(first, min(first + self._times, len(self._reader))):
            part, pieces = self._reader[number], self._reader.provenance(number)
            if len(part.cu_seqlens) - 1 != len(pieces):
                raise StoreError(
                    f"packed: sequence {number} has {len(part.cu_seqlens) - 1} pieces, and {len(pieces)} in "
                    "the table of pieces; verify the artifact"
                )
            goes_on, before = _goes_on(before, pieces), pieces
            tokens[used : used + part.num_tokens] = part.input_ids[: part.num_tokens]
            if goes_on:
                bounds[-1] = bounds[-1][:-1]
            bounds.append(part.cu_seqlens[1:].astype(np.int64) + used)
            if part.document_starts is not None:
                starts.append(part.document_starts[goes_on:])
            used += part.num_tokens
        known = np.concatenate(starts) if len(starts) == len(bounds) - 1 else None
        return Sequence(tokens, np.concatenate(bounds).astype(np.int32), known)

    def __iter__(self) -> Iterator[Sequence]:
        return (self[index] for index in range(len(self)))


def _goes_on(before: list[Piece], pieces: list[Piece]) -> bool:
    """Whether a sequence begins with the rest of a piece; a takedown may leave one without pieces."""
    if not (before and pieces) or pieces[0].fim:
        return False
    end = replace(before[-1], document_start=before[-1].document_start + before[-1].length)
    names = ("source", "shard", "document", "epoch", "document_start", "fim")
    return all(getattr(end, name) == getattr(pieces[0], name) for name in names)
