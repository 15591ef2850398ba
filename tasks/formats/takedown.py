"""What a takedown says of itself, beside the packed sequences that it wrote anew.

    takedown.json        `TakedownManifest`: which documents, and what changed
    taken_down.parquet   a row a piece that is gone: sequence, start, length (as they were), source (its index
                         in `packed.json`), shard, ordinal, document_start, epoch

The text and the tokens themselves are in neither.
"""

from pathlib import Path
from typing import Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tasks.formats.manifests import read_model, write_model
from tasks.formats.packed_files import PROVENANCE_SCHEMA

MANIFEST_FILE = "takedown.json"
PIECES_FILE = "taken_down.parquet"
TAKEN_DOWN_SCHEMA = pa.schema(
    [
        PROVENANCE_SCHEMA.field(name)
        for name in (
            "sequence", "start", "length", "source", "shard", "ordinal", "document_start", "epoch",
        )
    ]
)  # fmt: skip


class TakenDocument(BaseModel):
    """A document that was asked to be taken down.

    Attributes:
        name: what it was called by.
        source, file, row: where it is; rows count from 0.
        shard, ordinal: by what the corpus and the encoding know it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    source: str
    file: str
    row: int
    shard: int
    ordinal: int


class TakedownManifest(BaseModel):
    """The content of `takedown.json`.

    Attributes:
        previous: content digest of the packed artifact that this one takes the place of.
        predecessors: digests of all packed artifacts whose sequences have the same numbers as here, so that
            a place in one of them is the same place here; the oldest first.
        documents: all that were asked to be taken down, in order of source, shard and ordinal.
        changed_sequences: numbers of the sequences that are not what they were, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    previous: str
    predecessors: tuple[str, ...]
    documents: tuple[TakenDocument, ...]
    changed_sequences: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read `takedown.json` in the directory `path`.

        Raises:
            StoreError: it is missing or broken.
        """
        return read_model(path / MANIFEST_FILE, cls, "takedown")

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """The same where there is one; None for an artifact that nothing was taken down from."""
        return cls.open(path) if (path / MANIFEST_FILE).is_file() else None

    def save(self, path: Path) -> None:
        """Write `takedown.json` into the directory `path`."""
        write_model(path / MANIFEST_FILE, self)
