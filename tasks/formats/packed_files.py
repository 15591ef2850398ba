"""Names, manifest and columns of packed shards; `tasks.formats.packed` says what they mean together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import Field

from tasks.formats.manifests import read_model, write_model
from tasks.formats.packing_plan import PIECE_SCHEMA, ShardedPacking

PackedFormat: TypeAlias = Literal["arrow", "jsonl", "mds", "megatron", "memmap", "npy", "parquet"]

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
PROVENANCE_SCHEMA = PIECE_SCHEMA.append(pa.field("ordinal", pa.uint64(), nullable=False))


@dataclass(frozen=True)
class ShardFiles:
    """Where the files of one packed shard lie in the directory `folder`."""

    folder: Path
    index: int

    def _named(self, ending: str, stem: str = "shard") -> Path:
        return self.folder / f"{stem}-{self.index:05d}{ending}"

    @property
    def pieces(self) -> Path:
        """Which document each piece is of, for every format; `shard-*.parquet` does not match it."""
        return self._named(".parquet", "pieces")

    @property
    def tokens(self) -> Path:
        """The memmap format's tokens."""
        return self._named(".bin")

    @property
    def rows(self) -> Path:
        """The npy format's tokens; no boundaries' file has such a name."""
        return self._named(".npy", "tokens")

    @property
    def cu_seqlens(self) -> Path:
        """Boundaries, flat; of the memmap and the npy format."""
        return self._named(".cu_seqlens.npy")

    @property
    def cu_offsets(self) -> Path:
        """Where each sequence's boundaries are among the flat ones."""
        return self._named(".cu_offsets.npy")

    @property
    def document_starts(self) -> Path:
        """Where in its document each piece starts, flat."""
        return self._named(".document_starts.npy")

    @property
    def parquet(self) -> Path:
        """The Parquet format's only file."""
        return self._named(".parquet")

    @property
    def arrow(self) -> Path:
        """The Arrow format's only file of a shard."""
        return self._named(".arrow")

    @property
    def jsonl(self) -> Path:
        """The JSON lines format's only file."""
        return self._named(".jsonl.zst")

    @property
    def megatron_bin(self) -> Path:
        """Megatron's tokens; `shard-*.bin` does not match it."""
        return self._named(".bin", "megatron")

    @property
    def megatron_idx(self) -> Path:
        """Megatron's index."""
        return self._named(".idx", "megatron")

    @property
    def mds(self) -> Path:
        """MosaicML's shard, under the name that its own writer gives."""
        return self.folder / f"shard.{self.index:05d}.mds"

    @property
    def boundaries(self) -> list[Path]:
        """The files that say where pieces are, beside a format that holds tokens alone."""
        return [self.cu_seqlens, self.cu_offsets, self.document_starts]

    def of_format(self, name: PackedFormat) -> list[Path]:
        """The files of this shard that a format consists of."""
        return {
            "arrow": [self.arrow],
            "jsonl": [self.jsonl],
            "mds": [self.mds],
            "megatron": [self.megatron_bin, self.megatron_idx],
            "memmap": [self.tokens, *self.boundaries],
            "npy": [self.rows, *self.boundaries],
            "parquet": [self.parquet],
        }[name]


class PackedManifest(ShardedPacking):
    """The content of `packed.json`; a packed shard has one too, with itself as the only shard.

    Attributes:
        formats: in which formats every shard lies here; sorted.
        pad_id: what fills sequences up.
        mask_continued: whether `loss_mask` leaves out the first token of a piece that does not begin its
            document.
    """

    formats: tuple[PackedFormat, ...] = Field(min_length=1)
    pad_id: int = Field(ge=0)
    mask_continued: bool = False

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
        """Sequences of the shard that is called `index`."""
        return next(entry.num_sequences for entry in self.shards if entry.index == index)
