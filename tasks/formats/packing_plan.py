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

`packing.json` (`PackingManifest`) says how it was planned and what became of every source's documents and
tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tasks.errors import StoreError
from tasks.formats.encoded import TokenDtype
from tasks.formats.manifests import read_model, readable, write_model
from tasks.packing.pieces import LongDocuments, Strategy
from tasks.stage import Account

PIECES_FILE = "pieces.parquet"
MANIFEST_FILE = "packing.json"


class PlannedShard(BaseModel):
    """One shard to be written: sequences [first_sequence, first_sequence + num_sequences)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    first_sequence: int
    num_sequences: int
    num_pieces: int
    num_tokens: int


class PackingManifest(BaseModel):
    """The content of `packing.json`.

    Attributes:
        tokenizer: content digest of the tokenizer artifact.
        dtype: width of the tokens.
        end_of_document_id: id of the token that ends each document, or None.
        num_tokens: tokens in the sequences, padding not counted.
        num_padding_tokens: padding that fills the sequences up.
        sources: names; the pieces' `source` is an index into them.
        accounts: per source and unit; see `tasks.packing.accounts`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokenizer: str
    dtype: TokenDtype
    vocab_size: int
    end_of_document_id: int | None
    sequence_length: int
    strategy: Strategy
    long_documents: LongDocuments | None
    last_sequence: str | None
    num_sequences: int
    num_tokens: int
    num_padding_tokens: int
    sources: list[str]
    shards: list[PlannedShard]
    accounts: list[Account]


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

    def __len__(self) -> int:
        return len(self.sequence)

    def rows(self, start: int, stop: int) -> "PieceTable":
        """Rows [start, stop), as views."""
        return PieceTable(**{name: values[start:stop] for name, values in self.columns().items()})

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


PIECE_SCHEMA = pa.schema(
    [
        pa.field(name, pa.uint16() if name in {"source", "epoch"} else pa.uint32(), nullable=False)
        for name in (field.name for field in fields(PieceTable))
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


def write_packing_plan(path: Path, manifest: PackingManifest, pieces: Sequence[PieceTable]) -> None:
    """Write both files into the directory `path`.

    Args:
        path: an existing directory.
        manifest: has one shard for each of `pieces`.
        pieces: the pieces of each shard, in order.
    """
    with pq.ParquetWriter(path / PIECES_FILE, PIECE_SCHEMA, compression="zstd") as writer:
        for part in pieces:
            table = pa.table(part.columns(), schema=PIECE_SCHEMA)
            writer.write_table(table, row_group_size=max(1, len(part)))
    write_model(path / MANIFEST_FILE, manifest)
