"""Take pieces out of packed shards: the remaining pieces of a sequence move together, followed by padding.

A shard without such pieces is hard-linked unchanged. In the other shards every sequence without such pieces
keeps its bytes, and no sequence changes its number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.block import SequenceBlock, ShardShape, group_rows
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.plan import PackedShardEntry
from tokmill.tasks.formats.packed.shards import PieceRows, open_shard
from tokmill.tasks.formats.packed.writing import shard_files, write_pieces, write_sequences
from tokmill.tasks.kernels.tokens import gather
from tokmill.tasks.packing.assemble import link
from tokmill.tasks.tracing.pieces import Wanted

_BLOCK_TOKENS = 1 << 24

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class TakenDownShard:
    """A shard without the documents' pieces.

    Attributes:
        entry: the shard's new entry in the manifest.
        pieces: the pieces that were taken down, as they were: the columns of `pieces-*.parquet`.
        taken: documents and tokens of these pieces, int64 [sources, 2]; see `count_by_source`.
        kept: the same for the remaining pieces.
    """

    entry: PackedShardEntry
    pieces: Columns
    taken: NDArray[np.int64]
    kept: NDArray[np.int64]


def count_by_source(pieces: Columns, num_sources: int) -> NDArray[np.int64]:
    """Documents and tokens of pieces, by source: int64 [sources, 2].

    A document counts once per epoch, at the piece that holds its beginning; packing keeps the beginning of
    every document of which it keeps anything.
    """
    begun = pieces["source"][pieces["document_start"] == 0]
    tokens = np.bincount(pieces["source"], weights=pieces["length"], minlength=num_sources)
    return np.stack([np.bincount(begun, minlength=num_sources), tokens.astype(np.int64)], axis=1)


def take_down_shard(
    path: Path, manifest: PackedManifest, entry: PackedShardEntry, wanted: Wanted, out: Path
) -> TakenDownShard:
    """Write a shard of the artifact in `path` without the pieces of the `wanted` documents.

    Raises:
        StoreError: a file of the shard is missing or broken.
    """
    files = ShardFiles(path, entry.index)
    pieces = PieceRows.open(files, manifest)
    chosen = wanted.among(pieces)
    taken, kept = (
        {name: values[rows] for name, values in pieces.columns.items()} for rows in (chosen, ~chosen)
    )
    if chosen.any():
        _write(path, manifest, entry, _Pieces(pieces, ~chosen), ShardFiles(out, entry.index))
    else:
        for file in shard_files(files, manifest):
            link(file, out / file.relative_to(path))
    num_tokens = int(kept["length"].sum())
    num_sources = len(manifest.sources)
    return TakenDownShard(
        entry.model_copy(update={"num_tokens": num_tokens}),
        taken,
        count_by_source(taken, num_sources),
        count_by_source(kept, num_sources),
    )


class _Pieces:
    """The kept pieces of a shard, with their old and new places.

    Attributes:
        firsts: int64 [n + 1]; the pieces of the shard's sequence i are [firsts[i], firsts[i + 1]).
        columns: the columns of the pieces; `start` is the new place.
        starts: int64 [p], the old places.
    """

    def __init__(self, pieces: PieceRows, keep: NDArray[np.bool_]) -> None:
        columns = {name: values[keep] for name, values in pieces.columns.items()}
        self.firsts = np.concatenate([[0], np.cumsum(keep)])[pieces.firsts]
        self.starts = columns["start"].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(columns["length"], dtype=np.int64)])
        begins = np.repeat(ends[self.firsts[:-1]], np.diff(self.firsts))
        self.columns = columns | {"start": (ends[:-1] - begins).astype(np.uint32)}

    def part(self, rows: range) -> tuple[slice, NDArray[np.int64]]:
        """The range of the pieces of the sequences `rows`, and where in it each sequence's pieces begin."""
        firsts = self.firsts[rows.start : rows.stop + 1]
        return slice(int(firsts[0]), int(firsts[-1])), firsts - firsts[0]


def _write(
    path: Path, manifest: PackedManifest, entry: PackedShardEntry, pieces: _Pieces, files: ShardFiles
) -> None:
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    shape = ShardShape(entry.num_sequences, manifest.sequence_length, dtype, manifest.labels)
    reader = open_shard(path, entry.index, manifest)
    with write_sequences(files, shape, manifest.formats) as append, write_pieces(files) as append_pieces:
        for rows in _blocks(entry.num_sequences, manifest.sequence_length):
            before = np.stack([reader.tokens(row) for row in rows])
            its, firsts = pieces.part(rows)
            append(_moved(before, pieces, its, firsts, manifest))
            columns = {name: pieces.columns[name][its] for name in PROVENANCE_SCHEMA.names}
            append_pieces(pa.table(columns, schema=PROVENANCE_SCHEMA))


def _blocks(num_sequences: int, sequence_length: int) -> Iterator[range]:
    group = group_rows(sequence_length)
    step = max(1, _BLOCK_TOKENS // (group * sequence_length)) * group
    return (range(first, min(first + step, num_sequences)) for first in range(0, num_sequences, step))


def _moved(
    before: NDArray[Any], pieces: _Pieces, its: slice, firsts: NDArray[np.int64], manifest: PackedManifest
) -> SequenceBlock:
    """The sequences with the kept pieces moved together, and padding after them."""
    rows = np.full_like(before, manifest.pad_id)
    lengths = pieces.columns["length"][its].astype(np.int64)
    size, width = before.itemsize, before.shape[1]
    base = np.repeat(np.arange(len(before)) * width, np.diff(firsts))
    gather(
        before.reshape(-1).view(np.uint8),
        (base + pieces.starts[its]) * size,
        lengths * size,
        (base + pieces.columns["start"][its]) * size,
        rows.reshape(-1).view(np.uint8),
    )
    starts = pieces.columns["document_start"][its].astype(np.int64)
    return SequenceBlock(rows, firsts, lengths, starts)
