"""Reads single packed shards: the tokens and boundaries of a sequence, and where its pieces come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.formats.manifests import readable
from tasks.formats.packed_columnar import ArrowShard, ParquetShard
from tasks.formats.packed_files import PROVENANCE_SCHEMA, PackedFormat, PackedManifest, ShardFiles
from tasks.formats.packed_jsonl import JsonlShard
from tasks.formats.packed_mds import MdsShard
from tasks.formats.packed_megatron import MegatronShard
from tasks.formats.packed_memmap import MemmapShard

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
            StoreError: it is missing or is not Parquet.
        """
        with readable(files.pieces, "table of pieces"):
            table = pq.read_table(files.pieces)
        columns = {
            name: table.column(name).to_numpy()
            for name in PROVENANCE_SCHEMA.names
            if name in table.schema.names
        }
        columns.setdefault("fim", np.zeros(len(table), dtype=np.uint8))  # the first version did not have it
        entry = next(entry for entry in manifest.shards if entry.index == files.index)
        wanted = np.arange(entry.first_sequence, entry.first_sequence + entry.num_sequences + 1)
        return cls(columns, np.searchsorted(columns["sequence"], wanted))

    def rows(self, row: int) -> list[dict[str, int]]:
        """The pieces of the shard's sequence `row`, in order."""
        first, stop = int(self.firsts[row]), int(self.firsts[row + 1])
        names = list(self.columns)
        values = zip(*(self.columns[name][first:stop].tolist() for name in names), strict=True)
        return [dict(zip(names, row_values, strict=True)) for row_values in values]

    def value(self, name: str, row: int) -> NDArray[Any]:
        """What column `name` has for the pieces of the shard's sequence `row`, in order."""
        return self.columns[name][int(self.firsts[row]) : int(self.firsts[row + 1])]
