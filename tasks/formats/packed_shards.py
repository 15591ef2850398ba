"""Reads single packed shards: the tokens and boundaries of a sequence, and where its pieces come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import StoreError
from tasks.formats.manifests import readable
from tasks.formats.npy import open_vector
from tasks.formats.packed_files import PROVENANCE_SCHEMA, SEQUENCE_SCHEMA, PackedManifest, ShardFiles


class ShardReader(Protocol):
    """What each format's reader gives for row `row` of its shard."""

    def tokens(self, row: int) -> NDArray[Any]:
        """The sequence's tokens with its padding, shape (sequence_length,)."""
        ...

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """Boundaries of its pieces, from 0 to the number of its tokens, shape (pieces + 1,)."""
        ...


@dataclass(frozen=True)
class MemmapShard:
    """The memmap format: tokens uint16 | uint32 [n, sequence_length], memory-mapped; views, no copies."""

    rows: NDArray[Any]
    flat: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def open(cls, files: ShardFiles, manifest: PackedManifest) -> "MemmapShard":
        """Map the files.

        Raises:
            StoreError: a file is missing, or its size is not what the manifest says.
        """
        num_sequences = _entry_sequences(files, manifest)
        shape = (num_sequences, manifest.sequence_length)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        expected = num_sequences * manifest.sequence_length * dtype.itemsize
        found = files.tokens.stat().st_size if files.tokens.is_file() else None
        if found != expected:
            raise StoreError(f"{files.tokens}: {found} bytes must be {expected}; verify the artifact")
        rows = np.memmap(files.tokens, dtype=dtype, mode="r", shape=shape)
        return cls(rows, open_vector(files.cu_seqlens), open_vector(files.cu_offsets))

    def tokens(self, row: int) -> NDArray[Any]:
        """See `ShardReader`."""
        return np.asarray(self.rows[row])

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """See `ShardReader`."""
        return np.asarray(self.flat[self.offsets[row] : self.offsets[row + 1]])


class ParquetShard:
    """The Parquet format; keeps the row group that was read last."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Open the file.

        Raises:
            StoreError: it is missing, is not Parquet, or has another number of rows than the manifest says.
        """
        self._path = files.parquet
        self._dtype = np.dtype(manifest.dtype)
        with readable(files.parquet, "Parquet file"):
            metadata = pq.read_metadata(files.parquet)
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        self._firsts = np.cumsum([0, *sizes])
        if self._firsts[-1] != _entry_sequences(files, manifest):
            raise StoreError(
                f"{files.parquet}: {self._firsts[-1]} rows do not fit packed.json; verify the artifact"
            )
        self._held: tuple[int, dict[str, pa.ListArray]] = (-1, {})

    def tokens(self, row: int) -> NDArray[Any]:
        """See `ShardReader`; converted to the memmap format's width."""
        return self._value("input_ids", row).astype(self._dtype)

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """See `ShardReader`."""
        return np.cumsum([0, *self._value("seq_lengths", row)], dtype=np.int32)

    def _value(self, column: str, row: int) -> NDArray[np.int32]:
        group = int(np.searchsorted(self._firsts, row, side="right")) - 1
        held, columns = self._held  # taken at once: another thread may put another group there
        if group != held:
            with readable(self._path, "Parquet file"), pq.ParquetFile(self._path) as parquet:
                read = parquet.read_row_group(group)
            columns = {name: read.column(name).combine_chunks() for name in SEQUENCE_SCHEMA.names}
            self._held = (group, columns)
        values: NDArray[np.int32] = columns[column][row - int(self._firsts[group])].values.to_numpy()
        return values


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
        columns = {name: table.column(name).to_numpy() for name in PROVENANCE_SCHEMA.names}
        entry = next(entry for entry in manifest.shards if entry.index == files.index)
        wanted = np.arange(entry.first_sequence, entry.first_sequence + entry.num_sequences + 1)
        return cls(columns, np.searchsorted(columns["sequence"], wanted))

    def rows(self, row: int) -> list[dict[str, int]]:
        """The pieces of the shard's sequence `row`, in order."""
        first, stop = int(self.firsts[row]), int(self.firsts[row + 1])
        names = list(self.columns)
        values = zip(*(self.columns[name][first:stop].tolist() for name in names), strict=True)
        return [dict(zip(names, row_values, strict=True)) for row_values in values]


def open_shard(folder: Path, index: int, manifest: PackedManifest) -> ShardReader:
    """Open shard `index` in the format that reads fastest of those that are there."""
    files = ShardFiles(folder, index)
    return (
        MemmapShard.open(files, manifest) if "memmap" in manifest.formats else ParquetShard(files, manifest)
    )


def _entry_sequences(files: ShardFiles, manifest: PackedManifest) -> int:
    return next(entry.num_sequences for entry in manifest.shards if entry.index == files.index)
