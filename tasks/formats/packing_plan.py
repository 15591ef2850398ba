"""A packing plan on disk: which piece of which document goes where, before any token is copied.

`pieces.parquet` has one row a piece, in order of sequence and place; one row group a packed shard, so that
whoever writes a shard reads its own part only:

    sequence         uint32   counted from 0 over all shards
    start            uint32   place in the sequence, in tokens
    length           uint32   tokens
    source           uint16   index into `sources`
    shard            uint32   index of the encoded shard among that source's shards
    document         uint32   position in the encoded shard
    document_start   uint32   where in the document the piece starts, in tokens
    epoch            uint16   which time through the source this is, from 0
    fim              uint8    0 where the document's tokens stand in their order; 1 or 2 where they are
                              rearranged, and three of `length` are added tokens; see `tasks.packing.fim`

`packing.json` (`PackingManifest`) says how it was planned and what became of every source's documents and
tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tasks.errors import StoreError
from tasks.formats.manifests import read_model, readable, write_model
from tasks.formats.packing import Packing
from tasks.stage import Account

PIECES_FILE = "pieces.parquet"
MANIFEST_FILE = "packing.json"


class PackedShardEntry(BaseModel):
    """One shard: sequences [first_sequence, first_sequence + num_sequences)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    first_sequence: int
    num_sequences: int
    num_tokens: int


class PlannedShard(PackedShardEntry):
    """One shard to be written, and how many rows of `pieces.parquet` are its."""

    num_pieces: int

    @property
    def entry(self) -> PackedShardEntry:
        """What a packed artifact says of the shard once it is written."""
        return PackedShardEntry(**self.model_dump(exclude={"num_pieces"}))


class PackingManifest(Packing):
    """The content of `packing.json`.

    Attributes:
        num_documents: documents that came in, repeated ones each time.
        num_split_documents: of them, those that are whole, over several sequences.
        num_cut_documents: documents in several pieces that would have fitted into one sequence.
        num_lost_tokens: tokens of documents that are in no sequence.
        shards: in order.
        accounts: per source and unit; see `tasks.packing.accounts`.
    """

    num_documents: int
    num_split_documents: int
    num_cut_documents: int
    num_lost_tokens: int
    shards: tuple[PlannedShard, ...]
    accounts: tuple[Account, ...]


@dataclass(frozen=True)
class PieceTable:
    """Rows of `pieces.parquet`; all arrays have the same length p. See the module for what they mean."""

    sequence: NDArray[np.uint32]
    start: NDArray[np.uint32]
    length: NDArray[np.uint32]
    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    document_start: NDArray[np.uint32]
    epoch: NDArray[np.uint16]
    fim: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.sequence)

    def rows(self, start: int, stop: int) -> "PieceTable":
        """Rows [start, stop), as views."""
        return PieceTable(**{name: values[start:stop] for name, values in self.columns().items()})

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_WIDTHS = {"source": pa.uint16(), "epoch": pa.uint16(), "fim": pa.uint8()}
PIECE_SCHEMA = pa.schema(
    [
        pa.field(field.name, _WIDTHS.get(field.name, pa.uint32()), nullable=False)
        for field in fields(PieceTable)
    ]
)


@dataclass(frozen=True)
class PackingPlan:
    """A packing plan in a directory: the manifest, and the pieces of one shard when asked for."""

    path: Path
    manifest: PackingManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`.

        Raises:
            StoreError: it is missing or broken.
        """
        return cls(path, read_model(path / MANIFEST_FILE, PackingManifest, "packing plan"))

    @property
    def num_shards(self) -> int:
        """Packed shards that the plan asks for."""
        return len(self.manifest.shards)

    def pieces(self, index: int) -> PieceTable:
        """The pieces of shard `index` in [0, num_shards).

        Raises:
            StoreError: there is no such shard, or the file is broken.
        """
        file = self.path / PIECES_FILE
        if not 0 <= index < self.num_shards:
            raise StoreError(f"{self.path}: no shard {index}; the plan has shards 0 to {self.num_shards - 1}")
        with readable(file, "table of pieces"), pq.ParquetFile(file) as parquet:
            table = parquet.read_row_group(index)
        return PieceTable(**{name: table.column(name).to_numpy() for name in PIECE_SCHEMA.names})


class PackingPlanWriter:
    """Appends the pieces of one shard after the other; made by `write_packing_plan`."""

    def __init__(self, path: Path, parquet: pq.ParquetWriter) -> None:
        self._path = path
        self._parquet = parquet

    def append(self, pieces: PieceTable) -> None:
        """Write the pieces of the next shard."""
        table = pa.table(pieces.columns(), schema=PIECE_SCHEMA)
        self._parquet.write_table(table, row_group_size=max(1, len(pieces)))

    def finish(self, manifest: PackingManifest) -> None:
        """Write the manifest, which has one shard for each that was appended."""
        write_model(self._path / MANIFEST_FILE, manifest)


@contextmanager
def write_packing_plan(path: Path) -> Iterator[PackingPlanWriter]:
    """A writer of a packing plan into the existing directory `path`."""
    with pq.ParquetWriter(path / PIECES_FILE, PIECE_SCHEMA, compression="zstd") as parquet:
        yield PackingPlanWriter(path, parquet)
