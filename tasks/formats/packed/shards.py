"""Reads single packed shards: the tokens and boundaries of a sequence, and where its pieces come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.formats.files.indices import check_pieces
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.columnar import ArrowShard, ParquetShard
from tokmill.tasks.formats.packed.jsonl import JsonlShard
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedFormat, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.mds import MdsShard
from tokmill.tasks.formats.packed.megatron import MegatronShard
from tokmill.tasks.formats.packed.memmap import MemmapShard
from tokmill.tasks.formats.packed.plan import piece_columns

__all__ = ["MemmapShard", "PieceRows", "ShardReader", "open_shard"]


class ShardReader(Protocol):
    """What each format's reader gives for row `row` of its shard."""

    def tokens(self, row: int) -> NDArray[Any]:
        """The sequence's tokens with its padding, shape (sequence_length,)."""
        ...

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """Boundaries of its pieces, from 0 to the number of its tokens, shape (pieces + 1,)."""
        ...

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """Where in its document each of its pieces starts, shape (pieces,); None if it is not said here."""
        ...


_READERS: Mapping[PackedFormat, Callable[[ShardFiles, PackedManifest], ShardReader]] = {
    "memmap": MemmapShard.open,
    "npy": MemmapShard.open_npy,
    "mds": MdsShard,
    "arrow": ArrowShard,
    "megatron": MegatronShard,
    "parquet": ParquetShard,
    "jsonl": JsonlShard,
}
"""Those that read fastest first."""


def open_shard(folder: Path, index: int, manifest: PackedManifest) -> ShardReader:
    """Open shard `index` in the format that reads fastest of those that are there.

    Raises:
        StoreError: a file is missing or broken, or is not what the manifest says.
    """
    name = next(name for name in _READERS if name in manifest.formats)
    return _READERS[name](ShardFiles(folder, index), manifest)


@dataclass(frozen=True)
class PieceRows:
    """Where the pieces of a shard come from: the columns, and where each sequence's rows begin."""

    columns: dict[str, NDArray[Any]]
    firsts: NDArray[np.int64]

    @classmethod
    def open(cls, files: ShardFiles, manifest: PackedManifest) -> "PieceRows":
        """Read the file.

        Raises:
            StoreError: it is missing, is not Parquet, or its rows are not the pieces of the shard.
        """
        with readable(files.pieces, "table of pieces"):
            table = pq.read_table(files.pieces)
        columns = piece_columns(files.pieces, table, PROVENANCE_SCHEMA)
        entry = next(entry for entry in manifest.shards if entry.index == files.index)
        sequences = range(entry.first_sequence, entry.first_sequence + entry.num_sequences)
        check_pieces(files.pieces, columns, sequences, manifest.sequence_length, len(manifest.sources))
        return cls(
            columns, np.searchsorted(columns["sequence"], np.arange(sequences.start, sequences.stop + 1))
        )

    def rows(self, row: int) -> list[dict[str, int]]:
        """The pieces of the shard's sequence `row`, in order."""
        first, stop = int(self.firsts[row]), int(self.firsts[row + 1])
        names = list(self.columns)
        values = zip(*(self.columns[name][first:stop].tolist() for name in names), strict=True)
        return [dict(zip(names, row_values, strict=True)) for row_values in values]

    def value(self, name: str, row: int) -> NDArray[Any]:
        """What column `name` has for the pieces of the shard's sequence `row`, in order."""
        return self.columns[name][int(self.firsts[row]) : int(self.firsts[row + 1])]
