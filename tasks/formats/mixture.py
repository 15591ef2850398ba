"""A mixture on disk: which documents, in which order. Nothing is copied to make it.

`plan.parquet` has one row a document, in the order of the mixture:

    source       uint16   index into `mixture.json`'s sources, which are in the encoded manifest's order
    shard        uint32   index of the encoded shard among that source's shards
    document     uint32   position in the encoded shard: tokens[offsets[document]:offsets[document + 1]]
    epoch        uint16   0 for the first time through the source, 1 for the second, …
    num_tokens   uint32   the document's length, end token included; at least 1

`mixture.json` (`MixtureManifest`) says what was asked for and what came of it. The same mixture gives the
same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tasks.errors import StoreError
from tasks.formats.manifests import read_model, readable, write_model

PLAN_FILE = "plan.parquet"
MANIFEST_FILE = "mixture.json"
_ROW_GROUP = 1 << 20
_SCHEMA = pa.schema(
    [
        pa.field("source", pa.uint16(), nullable=False),
        pa.field("shard", pa.uint32(), nullable=False),
        pa.field("document", pa.uint32(), nullable=False),
        pa.field("epoch", pa.uint16(), nullable=False),
        pa.field("num_tokens", pa.uint32(), nullable=False),
    ]
)


class MixedSource(BaseModel):
    """One source of a mixture.

    Attributes:
        num_documents: documents that it has.
        num_tokens: tokens that it has.
        requested_share: its part of the mixture's tokens as asked for.
        quota_tokens: the same in tokens.
        share: its part of the mixture's tokens as it came out.
        drawn_documents: documents in the mixture, repetitions included.
        drawn_tokens: their tokens; within one document of `quota_tokens`.
        unique_documents: documents that occur at least once.
        unique_tokens: their tokens, counted once.
        epochs: `drawn_tokens` / `num_tokens`.
        max_repetition: the most times that it may be drawn.
        limits: whether that limit is what keeps its share, or the total, from being larger.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    num_documents: int
    num_tokens: int
    requested_share: float
    quota_tokens: int
    share: float
    drawn_documents: int
    drawn_tokens: int
    unique_documents: int
    unique_tokens: int
    epochs: float
    max_repetition: float
    limits: bool


class MixtureManifest(BaseModel):
    """The content of `mixture.json`.

    Attributes:
        method: the rule that gave the shares.
        temperature: its T where the rule is "temperature", else None.
        seed: what decided the order.
        num_documents: rows of the plan.
        num_tokens: their tokens.
        sources: in the encoded manifest's order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    temperature: float | None
    seed: int
    num_documents: int
    num_tokens: int
    sources: list[MixedSource]

    def save(self, path: Path) -> None:
        """Write `mixture.json` into the directory `path`."""
        write_model(path / MANIFEST_FILE, self)


@dataclass(frozen=True)
class Plan:
    """Rows of `plan.parquet`; all arrays have the same length n.

    Attributes:
        source: uint16 [n].
        shard: uint32 [n].
        document: uint32 [n].
        epoch: uint16 [n].
        num_tokens: uint32 [n].
    """

    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    epoch: NDArray[np.uint16]
    num_tokens: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.source)

    def save(self, path: Path) -> None:
        """Write `plan.parquet` into the directory `path`."""
        columns = [pa.array(getattr(self, name), type=_SCHEMA.field(name).type) for name in _SCHEMA.names]
        table = pa.Table.from_arrays(columns, schema=_SCHEMA)
        pq.write_table(table, path / PLAN_FILE, row_group_size=_ROW_GROUP, compression="zstd")


@dataclass(frozen=True)
class Mixture:
    """A mixture in a directory: the manifest, and the plan when asked for."""

    path: Path
    manifest: MixtureManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`.

        Raises:
            StoreError: it is missing or broken.
        """
        return cls(path, read_model(path / MANIFEST_FILE, MixtureManifest, "mixture"))

    @property
    def sources(self) -> list[str]:
        """Names of the sources; the plan's `source` is an index into them."""
        return [entry.source for entry in self.manifest.sources]

    def plan(self) -> Plan:
        """The whole plan.

        Raises:
            StoreError: the file is missing, is not Parquet, or has other columns.
        """
        parts = list(self.batches())
        return Plan(
            **{name: _joined([getattr(part, name) for part in parts], name) for name in _SCHEMA.names}
        )

    def batches(self) -> Iterator[Plan]:
        """The plan in order, at most a million rows at a time.

        Raises:
            StoreError: the file is missing, is not Parquet, or has other columns.
        """
        file = self.path / PLAN_FILE
        with readable(file, "plan"), pq.ParquetFile(file) as parquet:
            if not parquet.schema_arrow.equals(_SCHEMA):
                raise StoreError(f"{file}: columns must be {_SCHEMA.names}; verify the artifact")
            for batch in parquet.iter_batches(batch_size=_ROW_GROUP):
                yield Plan(**{name: batch.column(name).to_numpy() for name in _SCHEMA.names})


def _joined(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    empty = np.empty(0, dtype=_SCHEMA.field(name).type.to_pandas_dtype())
    return np.concatenate([empty, *parts])
