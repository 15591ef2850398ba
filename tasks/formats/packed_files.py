"""Names, manifest and columns of packed shards; `tasks.formats.packed` says what they mean together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tasks.formats.encoded import TokenDtype
from tasks.formats.manifests import read_model, write_model
from tasks.formats.packing_plan import PIECE_SCHEMA
from tasks.packing.pieces import LongDocuments, Strategy

PackedFormat: TypeAlias = Literal["memmap", "parquet"]

MANIFEST_FILE = "packed.json"
SEQUENCE_SCHEMA = pa.schema(
    [
        pa.field(name, pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False)
        for name in ("input_ids", "position_ids", "segment_ids", "seq_lengths")
    ]
)
PROVENANCE_SCHEMA = PIECE_SCHEMA.append(pa.field("ordinal", pa.uint64(), nullable=False))


@dataclass(frozen=True)
class ShardFiles:
    """Where the files of one packed shard lie in the directory `folder`."""

    folder: Path
    index: int

    def _named(self, ending: str) -> Path:
        return self.folder / f"shard-{self.index:05d}{ending}"

    @property
    def pieces(self) -> Path:
        """Which document each piece is of, for every format; `shard-*.parquet` does not match it."""
        return self.folder / f"pieces-{self.index:05d}.parquet"

    @property
    def tokens(self) -> Path:
        """The memmap format's tokens."""
        return self._named(".bin")

    @property
    def cu_seqlens(self) -> Path:
        """The memmap format's boundaries, flat."""
        return self._named(".cu_seqlens.npy")

    @property
    def cu_offsets(self) -> Path:
        """Where each sequence's boundaries are among the flat ones."""
        return self._named(".cu_offsets.npy")

    @property
    def parquet(self) -> Path:
        """The Parquet format's only file."""
        return self._named(".parquet")

    def of_format(self, name: PackedFormat) -> list[Path]:
        """The files that a format consists of."""
        return [self.parquet] if name == "parquet" else [self.tokens, self.cu_seqlens, self.cu_offsets]


class PackedShardEntry(BaseModel):
    """One shard: sequences [first_sequence, first_sequence + num_sequences)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    first_sequence: int
    num_sequences: int
    num_tokens: int


class PackedManifest(BaseModel):
    """The content of `packed.json`; a packed shard has one too, with itself as the only shard.

    Attributes:
        formats: in which formats every shard lies here; sorted.
        tokenizer: content digest of the tokenizer artifact.
        dtype: width of the tokens in the memmap format, little-endian.
        strategy: how documents became sequences; see `tasks.packing.pieces`.
        long_documents: what became of documents longer than a sequence; None where any is cut.
        last_sequence: what became of the last, partial sequence; None where every one may be partial.
        pad_id: what fills sequences up.
        end_of_document_id: id of the token that ends each document, or None.
        num_tokens: padding not counted.
        sources: names; the pieces' `source` is an index into them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    formats: tuple[PackedFormat, ...]
    tokenizer: str
    dtype: TokenDtype
    vocab_size: int
    pad_id: int
    end_of_document_id: int | None
    sequence_length: int
    strategy: Strategy
    long_documents: LongDocuments | None
    last_sequence: str | None
    num_sequences: int
    num_tokens: int
    num_padding_tokens: int
    sources: tuple[str, ...]
    shards: tuple[PackedShardEntry, ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read `packed.json` in the directory `path`.

        Raises:
            StoreError: it is missing or broken.
        """
        return read_model(path / MANIFEST_FILE, cls, "packed manifest")

    def save(self, path: Path) -> None:
        """Write `packed.json` into the directory `path`."""
        write_model(path / MANIFEST_FILE, self)
