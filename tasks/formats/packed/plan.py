"""A packing plan on disk: the place of every piece of a document, before any token is copied.

`pieces.parquet` has one row per piece, in order of sequence and start, and one row group per packed shard, so
that the task that writes a shard reads only its own part:

    sequence         uint32   number of the sequence, from 0 over all shards
    start            uint32   token of the sequence at which the piece starts
    length           uint32   tokens
    source           uint16   index into `sources`
    shard            uint32   index of the encoded shard among that source's shards
    document         uint32   position in the encoded shard
    document_start   uint32   token of the document at which the piece starts
    epoch            uint16   number of the pass through the source, from 0
    fim              uint8    0 if the tokens are in the document's order; 1 or 2 if they are
                              rearranged, and three of `length` are added tokens; see `tasks.fim.tokens`

`packing.json` (`PackingManifest`) has the parameters of the plan and the accounts of every source.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Account
from tokmill.tasks.formats.files.indices import check_pieces
from tokmill.tasks.formats.files.manifests import read_model, readable, write_model
from tokmill.tasks.formats.files.parquet import numbers
from tokmill.tasks.formats.packed.figures import Packing
from tokmill.tasks.store.verify import check_files

PIECES_FILE = "pieces.parquet"
MANIFEST_FILE = "packing.json"


class PackedShardEntry(BaseModel):
    """One shard: sequences [first_sequence, first_sequence + num_sequences)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int = Field(ge=0, lt=1 << 32)
    first_sequence: int = Field(ge=0, lt=1 << 32)
    num_sequences: int = Field(ge=1)
    num_tokens: int = Field(ge=0)


class PlannedShard(PackedShardEntry):
    """One shard to write, and its number of rows in `pieces.parquet`."""

    num_pieces: int

    @property
    def entry(self) -> PackedShardEntry:
        """The entry of the shard in a packed artifact's manifest."""
        return PackedShardEntry(**self.model_dump(exclude={"num_pieces"}))


class ShardedPacking(Packing):
    """A packing with a list of its shards; their sums are checked when a manifest is read.

    Attributes:
        shards: in order.
    """

    shards: tuple[PackedShardEntry, ...]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Number of the sequences before each shard here; a shard alone begins with its first one."""
        return np.cumsum([0, *(entry.num_sequences for entry in self.shards)], dtype=np.int64)[:-1]

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        """Reject counts that do not add up: readers use them as indices."""
        next_sequence = self.shards[0].first_sequence if self.shards else 0
        for entry in self.shards:
            if entry.first_sequence != next_sequence:
                raise ValueError(f"shard {entry.index} begins at {entry.first_sequence}, not {next_sequence}")
            next_sequence += entry.num_sequences
        sums = [
            sum(getattr(entry, name) for entry in self.shards) for name in ("num_sequences", "num_tokens")
        ]
        if sums != [self.num_sequences, self.num_tokens]:
            raise ValueError(f"the shards have {sums} sequences and tokens, not those of the whole")
        if self.num_tokens + self.num_padding_tokens != self.num_sequences * self.sequence_length:
            raise ValueError("tokens and padding do not fill the sequences")
        if len({entry.index for entry in self.shards}) < len(self.shards):
            raise ValueError("two shards have the same index")
        return self


class PackingManifest(ShardedPacking):
    """The content of `packing.json`.

    Attributes:
        num_documents: input documents; repeated ones count each time.
        num_split_documents: documents that are whole, over several sequences.
        num_cut_documents: documents in several pieces that would have fitted into one sequence.
        num_lost_tokens: tokens of documents that are in no sequence.
        shards: in order.
        accounts: accounts per source and unit; see `tasks.packing.accounts`.
    """

    num_documents: int
    num_split_documents: int
    num_cut_documents: int
    num_lost_tokens: int
    shards: tuple[PlannedShard, ...]
    accounts: tuple[Account, ...]


@dataclass(frozen=True)
class PieceTable:
    """Rows of `pieces.parquet`; all arrays have the same length p. The module describes them."""

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

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The pieces of all parts, in order."""
        empty = {field.name: np.empty(0, str(field.type)) for field in PIECE_SCHEMA}
        return cls(
            **{
                name: np.concatenate([none, *(getattr(part, name) for part in parts)])
                for name, none in empty.items()
            }
        )


_WIDTHS = {"source": pa.uint16(), "epoch": pa.uint16(), "fim": pa.uint8()}
PIECE_SCHEMA = pa.schema(
    [
        pa.field(field.name, _WIDTHS.get(field.name, pa.uint32()), nullable=False)
        for field in fields(PieceTable)
    ]
)


def piece_columns(file: Path, table: pa.Table, schema: pa.Schema) -> dict[str, NDArray[Any]]:
    """The columns of a table of pieces, as arrays of the types of `schema`."""
    found: dict[str, NDArray[Any]] = {}
    for field in schema:
        named = [table.column(place) for place in table.schema.get_all_field_indices(field.name)]
        if len(named) != 1 or named[0].type != field.type or named[0].null_count:
            said = ", ".join(str(column.type) for column in named) or "missing"
            raise StoreError(
                f"{file}: column {field.name} is {said}, and must be {field.type} without nulls; verify the "
                "artifact"
            )
        found[field.name] = numbers(named[0])
    return found


@dataclass(frozen=True)
class PackingPlan:
    """A packing plan in a directory: the manifest, and the pieces of shards, read on demand."""

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
        """Number of packed shards in the plan."""
        return len(self.manifest.shards)

    def pieces(self, index: int) -> PieceTable:
        """The pieces of shard `index` in [0, num_shards).

        Raises:
            StoreError: there is no such shard, or the file is broken.
        """
        file = self.path / PIECES_FILE
        if not 0 <= index < self.num_shards:
            raise StoreError(f"{self.path}: no shard {index}; the plan has shards 0 to {self.num_shards - 1}")
        check_files(self.path, [file])
        with readable(file, "table of pieces"), pq.ParquetFile(file) as parquet:
            if parquet.num_row_groups != self.num_shards:
                raise StoreError(
                    f"{file}: {parquet.num_row_groups} row groups must be {self.num_shards}, one for each "
                    "shard; verify the artifact"
                )
            table = parquet.read_row_group(index)
        columns, shard = piece_columns(file, table, PIECE_SCHEMA), self.manifest.shards[index]
        if len(table) != shard.num_pieces:
            raise StoreError(
                f"{file}: {len(table)} pieces of shard {index} must be {shard.num_pieces}; verify the "
                "artifact"
            )
        sequences = range(shard.first_sequence, shard.first_sequence + shard.num_sequences)
        check_pieces(file, columns, sequences, self.manifest.sequence_length, len(self.manifest.sources))
        return PieceTable(**columns)


class PackingPlanWriter:
    """Appends the pieces of shards in order; created by `write_packing_plan`."""

    def __init__(self, path: Path, parquet: pq.ParquetWriter) -> None:
        self._path = path
        self._parquet = parquet

    def append(self, pieces: PieceTable) -> None:
        """Write the pieces of the next shard."""
        table = pa.table(pieces.columns(), schema=PIECE_SCHEMA)
        self._parquet.write_table(table, row_group_size=max(1, len(pieces)))

    def finish(self, manifest: PackingManifest) -> None:
        """Write the manifest, which lists every appended shard."""
        write_model(self._path / MANIFEST_FILE, manifest)


@contextmanager
def write_packing_plan(path: Path) -> Iterator[PackingPlanWriter]:
    """Yield a writer of a packing plan into the existing directory `path`."""
    with pq.ParquetWriter(path / PIECES_FILE, PIECE_SCHEMA, compression="zstd") as parquet:
        yield PackingPlanWriter(path, parquet)
