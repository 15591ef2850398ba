"""The files that describe a takedown.

    takedown.json        `TakedownManifest` of a packed artifact: the documents, and the changed sequences
    taken_down.parquet   one row per removed piece: sequence, start, length (before), source (its index
                         in `packed.json`), shard, ordinal, document_start, epoch

    excluded.json        `ExcludedDocuments` of a mixture: the documents

None of them holds text or tokens of the documents.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA

MANIFEST_FILE = "takedown.json"
PIECES_FILE = "taken_down.parquet"
EXCLUDED_FILE = "excluded.json"
TAKEN_DOWN_SCHEMA = pa.schema(
    [
        PROVENANCE_SCHEMA.field(name)
        for name in (
            "sequence", "start", "length", "source", "shard", "ordinal", "document_start", "epoch",
        )
    ]
)  # fmt: skip


class TakenDocument(BaseModel):
    """A document whose takedown was requested.

    Attributes:
        name: the name by which it was requested.
        source, file, row: its place; rows count from 0.
        shard, ordinal: its place in the corpus and the encoding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    source: str
    file: str
    row: int
    shard: int
    ordinal: int


def in_order(documents: Iterable[Mapping[str, Any]]) -> tuple[TakenDocument, ...]:
    """Make documents from their fields, sorted by source, shard, ordinal and name."""
    made = [TakenDocument(**document) for document in documents]
    return tuple(sorted(made, key=lambda one: (one.source, one.shard, one.ordinal, one.name)))


class ExcludedDocuments(BaseModel):
    """The content of `excluded.json`.

    Attributes:
        documents: all documents excluded from the mixture, by source, shard and ordinal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: tuple[TakenDocument, ...]

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]]) -> Self:
        """The documents with these fields, in any order."""
        return cls(documents=in_order(documents))

    @classmethod
    def found(cls, path: Path) -> Self | None:
        """Read the file of the mixture in the directory `path`; None if no document was excluded.

        Raises:
            StoreError: the file is broken.
        """
        file = path / EXCLUDED_FILE
        return read_model(file, cls, "list of excluded documents") if file.is_file() else None

    def save(self, path: Path) -> None:
        """Write `excluded.json` into the directory `path`."""
        write_model(path / EXCLUDED_FILE, self)


class TakedownManifest(BaseModel):
    """The content of `takedown.json`.

    Attributes:
        previous: content digest of the packed artifact that this one replaces.
        predecessors: digests of all packed artifacts whose sequences have the same numbers, so that
            a loader's place in one of them is valid here; the oldest first.
        documents: all documents whose takedown was requested, by source, shard and ordinal.
        changed_sequences: numbers of the changed sequences, in order.
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
        """Read the file if there is one; None for an artifact without takedowns."""
        return cls.open(path) if (path / MANIFEST_FILE).is_file() else None

    def save(self, path: Path) -> None:
        """Write `takedown.json` into the directory `path`."""
        write_model(path / MANIFEST_FILE, self)
