"""Pieces on disk, as docs/formats.md lists them: the packing plan, and the table of each packed shard.

A piece is a run of tokens of one document in one sequence. The plan has the place of every piece, before any
token is copied, with a row group per packed shard: the task that writes a shard reads only its part.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.arrays import Columns, columns_of, read_columns
from tokmill.tasks.formats.files.indices import check_pieces, untrue
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.manifest import PackedManifest, PackingManifest
from tokmill.tasks.store.verify import check_files

PIECES_FILE = "pieces.parquet"
PIECES_FOLDER = "__pieces__"
"""Readers of a folder skip this subfolder: `datasets` skips `__…`, Arrow and Spark skip `_…`."""
TAKEN_DOWN_FILE = "taken_down.parquet"


@dataclass(frozen=True)
class PieceTable(Columns):
    """Rows of `pieces.parquet`; all arrays have the same length."""

    sequence: NDArray[np.uint32]
    start: NDArray[np.uint32]
    length: NDArray[np.uint32]
    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    document_start: NDArray[np.uint32]
    epoch: NDArray[np.uint16]
    fim: NDArray[np.uint8]


PIECE_SCHEMA = PieceTable.schema()
PROVENANCE_SCHEMA = PIECE_SCHEMA.append(pa.field("ordinal", pa.uint64(), nullable=False))
_TAKEN_DOWN = ("sequence", "start", "length", "source", "shard", "ordinal", "document_start", "epoch")
TAKEN_DOWN_SCHEMA = pa.schema([PROVENANCE_SCHEMA.field(name) for name in _TAKEN_DOWN])


@dataclass(frozen=True)
class PackingPlan:
    """A packing plan in a directory: the manifest, and the pieces of shards, read on demand."""

    path: Path
    manifest: PackingManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`."""
        return cls(path, PackingManifest.open(path))

    @property
    def num_shards(self) -> int:
        """Number of packed shards in the plan."""
        return len(self.manifest.shards)

    def pieces(self, index: int) -> PieceTable:
        """The pieces of shard `index` in [0, num_shards); StoreError if there is no such shard."""
        file = self.path / PIECES_FILE
        if not 0 <= index < self.num_shards:
            raise StoreError(f"{self.path}: no shard {index}; the plan has shards 0 to {self.num_shards - 1}")
        shard = self.manifest.shards[index]
        check_files(self.path, [file])
        with readable(file, "table of pieces"), pq.ParquetFile(file) as parquet:
            if parquet.num_row_groups != self.num_shards:
                raise untrue(
                    file, f"{parquet.num_row_groups} row groups must be {self.num_shards}, one per shard"
                )
            table = parquet.read_row_group(index)
        if len(table) != shard.num_pieces:
            raise untrue(file, f"{len(table)} pieces of shard {index} must be {shard.num_pieces}")
        columns = columns_of(file, table, PIECE_SCHEMA)
        check_pieces(
            file, columns, shard.sequences, self.manifest.sequence_length, len(self.manifest.sources)
        )
        return PieceTable(**columns)


@contextmanager
def write_plan_pieces(path: Path) -> Iterator[Callable[[PieceTable], None]]:
    """Write the pieces of a plan into the directory `path`, one shard after the other."""
    with pq.ParquetWriter(path / PIECES_FILE, PIECE_SCHEMA, compression="zstd") as parquet:
        yield lambda pieces: parquet.write_table(
            pa.table(pieces.columns(), schema=PIECE_SCHEMA), row_group_size=max(1, len(pieces))
        )


@dataclass(frozen=True)
class PieceRows:
    """The table of pieces of a packed shard: its columns, and the first row of each sequence."""

    columns: dict[str, NDArray[Any]]
    firsts: NDArray[np.int64]

    @classmethod
    def open(cls, path: Path, index: int, manifest: PackedManifest) -> "PieceRows":
        """Read the table of shard `index` of the artifact in the directory `path`."""
        file, sequences = pieces_file(path, index), manifest.shard(index).sequences
        check_files(path, [file])
        columns = read_columns(file, PROVENANCE_SCHEMA, "table of pieces")
        check_pieces(file, columns, sequences, manifest.sequence_length, len(manifest.sources))
        firsts = np.searchsorted(columns["sequence"], np.arange(sequences.start, sequences.stop + 1))
        return cls(columns, firsts)

    def rows(self, row: int) -> list[dict[str, int]]:
        """The pieces of the shard's sequence `row`, in order."""
        part = slice(int(self.firsts[row]), int(self.firsts[row + 1]))
        values = zip(*(column[part].tolist() for column in self.columns.values()), strict=True)
        return [dict(zip(self.columns, row_values, strict=True)) for row_values in values]


def pieces_file(path: Path, index: int) -> Path:
    """The table of pieces of shard `index`, for every format; in a folder that other readers skip."""
    return path / PIECES_FOLDER / f"pieces-{index:05d}.parquet"


@contextmanager
def write_pieces(path: Path, index: int) -> Iterator[Callable[[pa.Table], None]]:
    """A writer of the table of pieces of a packed shard, whose rows come in order."""
    file = pieces_file(path, index)
    file.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(file, PROVENANCE_SCHEMA, compression="zstd") as writer:
        yield writer.write_table
