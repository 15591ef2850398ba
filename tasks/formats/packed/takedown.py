"""What a takedown says of itself, beside what it wrote anew.

    takedown.json        of packed sequences, `TakedownManifest`: which documents, and what changed
    taken_down.parquet   a row a piece that is gone: sequence, start, length (as they were), source (its index
                         in `packed.json`), shard, ordinal, document_start, epoch

    excluded.json        of a mixture, `ExcludedDocuments`: which documents

The text and the tokens themselves are in none of them.
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


def in_order(documents: Iterable[Mapping[str, Any]]) -> tuple[TakenDocument, ...]:
    """Documents from their fields, in order of source, shard, ordinal and name."""
    made = [TakenDocument(**document) for document in documents]
    return tuple(sorted(made, key=lambda one: (one.source, one.shard, one.ordinal, one.name)))


class ExcludedDocuments(BaseModel):
    """The content of `excluded.json`.

    Attributes:
        documents: all that were left out of the mixture, in order of source, shard and ordinal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: tuple[TakenDocument, ...]

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]]) -> Self:
        """The documents with these fields, in any order."""
        return cls(documents=in_order(documents))

    @classmethod
    def found(cls, path: Path) -> Self | None:
        """What the mixture in the directory `path` says; None where nothing was left out of it.

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
