"""A mixture on disk: its documents and their order. No tokens are copied.

`plan.parquet` has one row per document, in the order of the mixture:

    source       uint16   index into `mixture.json`'s sources, which are in the encoded manifest's order
    shard        uint32   index of the encoded shard among that source's shards
    document     uint32   position in the encoded shard: tokens[offsets[document]:offsets[document + 1]]
    epoch        uint16   how often this document was drawn before: 0 for the first time
    num_tokens   uint32   the document's length, including its end token; at least 1

`shares.parquet` has the requested and given tokens of each source at about a thousand points of the run, one
row per point and source:

    position     float64  tokens of the run before this point
    source       uint16
    requested    float64  tokens of the source requested up to this point
    given        float64  tokens of the source before this point

`request.parquet` is the request: the shares of the sources, which are linear in each segment of the run, one
row per segment and source, in this order:

    segment      uint32
    source       uint16
    start        float64  tokens of the run where the segment begins
    stop         float64  tokens where it ends
    first        float64  the source's share at its start
    last         float64  the source's share at its end
    before       float64  tokens of the source requested before the segment

`mixture.json` (`MixtureManifest`) has the request and the result. All files are written and read in blocks,
so memory does not grow with the plan. The same mixture gives the same bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_within
from tokmill.tasks.formats.files.manifests import read_model, readable, write_model
from tokmill.tasks.store.verify import check_files

PLAN_FILE = "plan.parquet"
SHARES_FILE = "shares.parquet"
REQUEST_FILE = "request.parquet"
MANIFEST_FILE = "mixture.json"
_ROW_GROUP = 1 << 20
PLAN_SCHEMA = pa.schema(
    [
        pa.field("source", pa.uint16(), nullable=False),
        pa.field("shard", pa.uint32(), nullable=False),
        pa.field("document", pa.uint32(), nullable=False),
        pa.field("epoch", pa.uint16(), nullable=False),
        pa.field("num_tokens", pa.uint32(), nullable=False),
    ]
)
SHARES_SCHEMA = pa.schema(
    [
        pa.field("position", pa.float64(), nullable=False),
        pa.field("source", pa.uint16(), nullable=False),
        pa.field("requested", pa.float64(), nullable=False),
        pa.field("given", pa.float64(), nullable=False),
    ]
)
REQUEST_SCHEMA = pa.schema(
    [
        pa.field("segment", pa.uint32(), nullable=False),
        pa.field("source", pa.uint16(), nullable=False),
        *(
            pa.field(name, pa.float64(), nullable=False)
            for name in ("start", "stop", "first", "last", "before")
        ),
    ]
)
_FEW = ["source", "shard", "epoch"]  # columns with few different values


class MixedSource(BaseModel):
    """One source of a mixture.

    Attributes:
        num_documents: documents of the source.
        num_tokens: tokens of the source.
        requested_share: requested share of the mixture's tokens.
        quota_tokens: the same in tokens.
        share: actual share of the mixture's tokens.
        drawn_documents: documents in the mixture, including repetitions.
        drawn_tokens: their tokens; within one document of `quota_tokens`.
        unique_documents: documents that occur at least once.
        unique_tokens: their tokens, counted once.
        epochs: `drawn_tokens` / `num_tokens`.
        max_repetition: the most times that it may be drawn.
        min_epochs: the fewest times that it must be drawn.
        limits: whether its `max_repetition` keeps its share, or the total, from being larger.
        given_before_tokens: tokens that it gave in the run before this mixture.
        most_ahead_tokens: the most tokens that it was ahead of the request, at any point of the plan.
        most_behind_tokens: the most tokens that it was behind the request.
        short_tokens: tokens by which it stops short of its request; 0 if less than one.
        short_from: tokens of the run before it stopped; from there on the other sources divide what
            it leaves, and may be ahead by as much. None if it does not stop short.
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
    min_epochs: float
    limits: bool
    given_before_tokens: int = 0
    most_ahead_tokens: float
    most_behind_tokens: float
    short_tokens: float = 0.0
    short_from: int | None = None


class MixtureManifest(BaseModel):
    """The content of `mixture.json`.

    Attributes:
        method: the rule that gave the shares, or "schedule".
        temperature: T if the rule is "temperature", else None.
        change: how a schedule's shares change between points; None without a schedule.
        seed: seed of the order.
        num_documents: rows of the plan.
        num_tokens: their tokens.
        long_documents: "whole", or "split" if each source's last document is cut at its quota.
        curriculum: whether a curriculum decides the order of documents.
        tolerance: allowed difference from the request, as a fraction of it.
        warnings: the requests that are missed by more than that.
        longest_document_tokens: tokens of the longest document drawn, or refused at a source's stop.
        first_position: tokens of the run before this mixture; 0 if it begins the run.
        first_document_starts: for each of the plan's first rows that is the rest of a document that an
            earlier mixture began, the token of the document at which it starts.
        sources: in the encoded manifest's order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    temperature: float | None
    change: str | None
    seed: int
    num_documents: int
    num_tokens: int
    long_documents: str = "whole"
    curriculum: bool = False
    tolerance: float | None = None
    warnings: list[str] = []
    longest_document_tokens: int
    first_position: int = 0
    first_document_starts: tuple[int, ...] = ()
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

    def rows(self, start: int, stop: int) -> "Plan":
        """Rows [start, stop), as views."""
        return Plan(**{name: getattr(self, name)[start:stop] for name in PLAN_SCHEMA.names})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> "Plan":
        """Join parts in order."""
        return Plan(
            **{name: _joined([getattr(part, name) for part in parts], name) for name in PLAN_SCHEMA.names}
        )


class PlanWriter:
    """Writes `plan.parquet` block by block; a context manager. The bytes do not depend on the blocks."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(path / PLAN_FILE, PLAN_SCHEMA, compression="zstd", use_dictionary=_FEW)
        self._held: list[Plan] = []
        self._num_held = 0

    def append(self, rows: Plan) -> None:
        """Add rows at the end."""
        self._held.append(rows)
        self._num_held += len(rows)
        if self._num_held >= _ROW_GROUP:
            held = Plan.join(self._held)
            whole = len(held) - len(held) % _ROW_GROUP
            self._write(held.rows(0, whole))
            self._held, self._num_held = [held.rows(whole, len(held))], len(held) - whole

    def _write(self, rows: Plan) -> None:
        columns = [pa.array(getattr(rows, field.name), type=field.type) for field in PLAN_SCHEMA]
        self._file.write_table(pa.Table.from_arrays(columns, schema=PLAN_SCHEMA), row_group_size=_ROW_GROUP)

    def close(self) -> None:
        """Write the remaining rows."""
        if self._num_held:
            self._write(Plan.join(self._held))
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


@dataclass(frozen=True)
class ShareTable:
    """The requested and given tokens of s sources up to each of p points.

    Attributes:
        positions: float64 [p], tokens of the mixture.
        requested: float64 [p, s], tokens.
        given: float64 [p, s], tokens.
    """

    positions: NDArray[np.float64]
    requested: NDArray[np.float64]
    given: NDArray[np.float64]

    def along(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens requested of each source up to k positions, in straight lines: float64 [k, s]."""
        columns = [np.interp(positions, self.positions, requested) for requested in self.requested.T]
        return np.stack(columns, axis=1)

    def save(self, path: Path) -> None:
        """Write `shares.parquet` into the directory `path`."""
        points, sources = self.given.shape
        columns = [
            np.repeat(self.positions, sources),
            np.tile(np.arange(sources, dtype=np.uint16), points),
            self.requested.ravel(),
            self.given.ravel(),
        ]
        _write_columns(path / SHARES_FILE, SHARES_SCHEMA, columns)


@dataclass(frozen=True)
class RequestTable:
    """The request of s sources over k segments of the run.

    Attributes:
        knots: float64 [k + 1], tokens of the run at which segments begin and end.
        firsts: float64 [k, s], each source's share at each segment's start.
        lasts: float64 [k, s], each source's share at each segment's end.
        before: float64 [k, s], tokens requested of each source before each segment.
    """

    knots: NDArray[np.float64]
    firsts: NDArray[np.float64]
    lasts: NDArray[np.float64]
    before: NDArray[np.float64]

    def save(self, path: Path) -> None:
        """Write `request.parquet` into the directory `path`."""
        segments, sources = self.firsts.shape
        columns = [
            np.repeat(np.arange(segments, dtype=np.uint32), sources),
            np.tile(np.arange(sources, dtype=np.uint16), segments),
            np.repeat(self.knots[:-1], sources),
            np.repeat(self.knots[1:], sources),
            *(values.ravel() for values in (self.firsts, self.lasts, self.before)),
        ]
        _write_columns(path / REQUEST_FILE, REQUEST_SCHEMA, columns)

    def at(self, position: float) -> NDArray[np.float64]:
        """Tokens requested of each source up to a position: float64 [s]; constant after the end."""
        found: NDArray[np.float64] = self.along(np.array([position]))[0]
        return found

    def along(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same up to each of p positions: float64 [p, s]."""
        segment = np.clip(np.searchsorted(self.knots, positions, side="right") - 1, 0, len(self.firsts) - 1)
        width = (self.knots[segment + 1] - self.knots[segment])[:, None]
        passed = np.minimum((positions - self.knots[segment])[:, None], width)
        slope = (self.lasts[segment] - self.firsts[segment]) / width
        found: NDArray[np.float64] = self.before[segment] + passed * (
            self.firsts[segment] + slope * passed / 2
        )
        return found


def _write_columns(file: Path, schema: pa.Schema, columns: Sequence[object]) -> None:
    table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema)
    pq.write_table(table, file, row_group_size=_ROW_GROUP, compression="zstd")


@dataclass(frozen=True)
class Mixture:
    """A mixture in a directory: the manifest, and the plan, which is read on demand."""

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
        return Plan.join(list(self.batches()))

    def request(self) -> RequestTable | None:
        """The request; None for a mixture from which documents were excluded.

        Raises:
            StoreError: the file is broken.
        """
        file = self.path / REQUEST_FILE
        if not file.exists():
            return None
        check_files(self.path, [file])
        with readable(file, "table of the request"):
            table = pq.read_table(file, schema=REQUEST_SCHEMA)
        shape = (-1, len(self.sources))
        values = {name: table[name].to_numpy().reshape(shape) for name in REQUEST_SCHEMA.names}
        knots = np.append(values["start"][:, 0], values["stop"][-1, 0])
        return RequestTable(knots, values["first"], values["last"], values["before"])

    def shares(self) -> ShareTable:
        """The requested and given tokens of each source, over the run.

        Raises:
            StoreError: the file is missing, or is not Parquet.
        """
        file = self.path / SHARES_FILE
        check_files(self.path, [file])
        with readable(file, "table of shares"):
            table = pq.read_table(file, schema=SHARES_SCHEMA)
        shape = (-1, len(self.sources))
        values = {name: table[name].to_numpy().reshape(shape) for name in ("position", "requested", "given")}
        return ShareTable(values["position"][:, 0], values["requested"], values["given"])

    def batches(self) -> Iterator[Plan]:
        """Yield the plan in order, at most a million rows at a time.

        Raises:
            StoreError: the file is missing, is not Parquet, or has other columns.
        """
        file, longest = self.path / PLAN_FILE, self.manifest.longest_document_tokens
        check_files(self.path, [file])
        with readable(file, "plan"), pq.ParquetFile(file) as parquet:
            if not parquet.schema_arrow.equals(PLAN_SCHEMA):
                raise StoreError(f"{file}: columns must be {PLAN_SCHEMA.names}; verify the artifact")
            for batch in parquet.iter_batches(batch_size=_ROW_GROUP):
                plan = Plan(**{name: batch.column(name).to_numpy() for name in PLAN_SCHEMA.names})
                check_within(file, "source of document", plan.source, least=0, below=len(self.sources))
                check_within(file, "tokens of document", plan.num_tokens, least=1, below=longest + 1)
                yield plan


def _joined(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    empty: NDArray[Any] = pa.array([], PLAN_SCHEMA.field(name).type).to_numpy()
    return np.concatenate([empty, *parts])
