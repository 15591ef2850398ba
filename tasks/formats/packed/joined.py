"""Read a packing at a multiple of its length: sequences of 2,048 tokens as sequences of 4,096 or 8,192.

Neighbouring sequences are joined end to end, with all padding at the end. A piece that continues in the next
sequence is joined with its rest. So long documents are cut less often, or not at all. Nothing is written.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.formats.packed.reader import PackedReader, Sequence

_EDGE = ("source", "shard", "document", "epoch", "document_start", "fim")


class JoinedReader:
    """Random access to every `sequence_length // reader's` sequences of a packing as one.

    Attributes:
        sequence_length: tokens per sequence, including padding.
    """

    def __init__(self, reader: PackedReader, sequence_length: int) -> None:
        """Join sequences.

        Args:
            reader: reader of the packing.
            sequence_length: a multiple of the packing's own.

        Raises:
            PackingError: it is not a multiple.
        """
        own = reader.manifest.sequence_length
        if sequence_length < own or sequence_length % own:
            raise PackingError(
                f"packed: sequence_length={sequence_length} must be a multiple of the packing's own {own}; "
                f"use e.g. {2 * own}, or pack at another length"
            )
        self.sequence_length = sequence_length
        self._reader = reader
        self._times = sequence_length // own
        self._goes_on = lru_cache(maxsize=None)(self._find_going_on)
        self._edges = lru_cache(maxsize=2)(self._find_edges)  # of a shard and of the one before

    def __len__(self) -> int:
        return (len(self._reader) + self._times - 1) // self._times

    def __getitem__(self, index: int) -> Sequence:
        """Sequence `index`; negative ones count from the end. The last one may join fewer sequences.

        Raises:
            IndexError: there is no such sequence.
        """
        wanted = index + len(self) if index < 0 else index
        if not 0 <= wanted < len(self):
            raise IndexError(f"sequence {index}: there are {len(self)} of {self.sequence_length} tokens")
        first = wanted * self._times
        numbers = range(first, min(first + self._times, len(self._reader)))
        goes_on = [number > first and self._continues(number) for number in numbers]
        return self._joined([self._part(number) for number in numbers], goes_on)

    def __iter__(self) -> Iterator[Sequence]:
        return (self[index] for index in range(len(self)))

    def _part(self, number: int) -> Sequence:
        """A sequence of the packing, after checking its number of pieces with the table of pieces."""
        part = self._reader[number]
        shard, row = self._reader.place(number)
        firsts = self._reader.piece_rows(shard).firsts
        if len(part.cu_seqlens) - 1 != firsts[row + 1] - firsts[row]:
            raise StoreError(
                f"packed: sequence {number} has {len(part.cu_seqlens) - 1} pieces, and "
                f"{firsts[row + 1] - firsts[row]} in the table of pieces; verify the artifact"
            )
        return part

    def _joined(self, parts: list[Sequence], goes_on: list[bool]) -> Sequence:
        """Join sequences; `goes_on` marks those that begin with the rest of the piece before."""
        manifest = self._reader.manifest
        tokens = np.full(self.sequence_length, manifest.pad_id, dtype=np.dtype(manifest.dtype))
        bounds, starts, used = [np.zeros(1, dtype=np.int64)], [], 0
        for part, merges in zip(parts, goes_on, strict=True):
            tokens[used : used + part.num_tokens] = part.input_ids[: part.num_tokens]
            if merges:
                bounds[-1] = bounds[-1][:-1]
            bounds.append(part.cu_seqlens[1:].astype(np.int64) + used)
            if part.document_starts is not None:
                starts.append(part.document_starts[1:] if merges else part.document_starts)
            used += part.num_tokens
        return Sequence(
            tokens,
            np.concatenate(bounds).astype(np.int32),
            np.concatenate(starts) if len(starts) == len(parts) else None,
        )

    def _continues(self, number: int) -> bool:
        """Whether sequence `number` begins with the rest of the last piece of the sequence before."""
        shard, row = self._reader.place(number)
        return bool(self._goes_on(shard)[row])

    def _find_going_on(self, shard: int) -> NDArray[np.bool_]:
        """The same for every sequence of a shard: bool [rows].

        A takedown may leave a sequence without pieces: it neither continues another nor is continued.
        """
        firsts = self._reader.piece_rows(shard).firsts
        begins, ends = self._edges(shard)
        before = self._edges(shard - 1)[1][:, -1:] if shard else np.full((len(_EDGE), 1), -1)
        same = np.all(begins == np.hstack([before, ends[:, :-1]]), axis=0)
        found: NDArray[np.bool_] = same & (firsts[1:] > firsts[:-1]) & (begins[-1] == 0)
        return found

    def _find_edges(self, shard: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The begin and the end of each sequence of a shard in its documents: two int64 [6, rows].

        The rows of values are those of `_EDGE`, -1 for a sequence without pieces; an end's `document_start`
        is where the next piece would start.
        """
        rows = self._reader.piece_rows(shard)
        pieces = np.stack([rows.columns[name].astype(np.int64) for name in _EDGE])
        after = pieces.copy()
        after[_EDGE.index("document_start")] += rows.columns["length"]
        firsts, empty = rows.firsts, rows.firsts[1:] == rows.firsts[:-1]
        edges = [np.full((len(_EDGE), len(empty)), -1, dtype=np.int64) for _ in range(2)]
        edges[0][:, ~empty] = pieces[:, firsts[:-1][~empty]]
        edges[1][:, ~empty] = after[:, firsts[1:][~empty] - 1]
        return edges[0], edges[1]
