"""File names, manifest and columns of packed shards; `tasks.formats.packed.reader` defines their meaning."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import Field

from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.formats.packed.plan import PIECE_SCHEMA, ShardedPacking

PackedFormat: TypeAlias = Literal["arrow", "jsonl", "mds", "megatron", "memmap", "npy", "parquet"]
"""The names of the formats; see `tasks.formats.packed.shard_format` for what a format is."""

MANIFEST_FILE = "packed.json"


def _column(name: str, element: pa.DataType) -> pa.Field:
    return pa.field(name, pa.list_(pa.field("element", element, nullable=False)), nullable=False)


SEQUENCE_SCHEMA = pa.schema(
    [
        _column("input_ids", pa.int32()),
        _column("position_ids", pa.int32()),
        _column("segment_ids", pa.int32()),
        _column("loss_mask", pa.bool_()),
        _column("seq_lengths", pa.int32()),
        _column("document_starts", pa.int64()),
    ]
)
LABEL_FIELDS = (_column("labels", pa.int32()), _column("attention_mask", pa.bool_()))
IGNORED_LABEL = -100
"""The label of a token whose prediction does not count, as in PyTorch's loss and Hugging Face's trainers."""
PIECES_FOLDER = "__pieces__"
"""Readers of a folder skip this subfolder: `datasets` skips `__…`, Arrow and Spark skip `_…`."""
PROVENANCE_SCHEMA = PIECE_SCHEMA.append(pa.field("ordinal", pa.uint64(), nullable=False))


@dataclass(frozen=True)
class ShardFiles:
    """Paths of the files of one packed shard in the directory `folder`."""

    folder: Path
    index: int

    def named(self, ending: str, stem: str = "shard") -> Path:
        """The shard's file with this ending, e.g. `shard-00003.parquet`."""
        return self.folder / f"{stem}-{self.index:05d}{ending}"

    @property
    def pieces(self) -> Path:
        """The table of pieces, for every format; in a folder that other readers skip."""
        name = f"pieces-{self.index:05d}.parquet"
        earlier = self.folder / name  # its place in versions 1 and 2
        return earlier if earlier.is_file() else self.folder / PIECES_FOLDER / name

    @property
    def tokens(self) -> Path:
        """The memmap format's tokens."""
        return self.named(".bin")

    @property
    def rows(self) -> Path:
        """The npy format's tokens; the name differs from those of files of boundaries."""
        return self.named(".npy", "tokens")

    @property
    def cu_seqlens(self) -> Path:
        """The flat boundaries of the memmap and npy formats."""
        return self.named(".cu_seqlens.npy")

    @property
    def cu_offsets(self) -> Path:
        """The offsets of each sequence's boundaries in the flat array."""
        return self.named(".cu_offsets.npy")

    @property
    def document_starts(self) -> Path:
        """The flat array of the document tokens at which pieces start."""
        return self.named(".document_starts.npy")

    @property
    def label_mask(self) -> Path:
        """The loss mask for OLMo; `shard-*.bin` does not match its name."""
        return self.named(".bin", "label_mask")

    @property
    def boundaries(self) -> list[Path]:
        """The files of boundaries that accompany a format with tokens only."""
        return [self.cu_seqlens, self.cu_offsets, self.document_starts]


class PackedManifest(ShardedPacking):
    """The content of `packed.json`; a packed shard has one too, with itself as the only shard.

    Attributes:
        formats: formats of every shard; sorted.
        pad_id: id of the padding token.
        labels: whether labels and label masks are written, too.
        origin: content digest of the packed artifact that this one was exported from, or None.
        predecessors: digests of artifacts whose sequences have the same numbers as the origin's; see
            `tasks.formats.packed.takedown`.
    """

    formats: tuple[PackedFormat, ...] = Field(min_length=1)
    pad_id: int = Field(ge=0)
    labels: bool = False
    origin: str | None = None
    predecessors: tuple[str, ...] = ()

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

    def num_sequences_of(self, index: int) -> int:
        """Number of sequences of the shard `index`."""
        return next(entry.num_sequences for entry in self.shards if entry.index == index)
