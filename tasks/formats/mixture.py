"""A mixture on disk: its documents and their order, shares and request; no tokens are copied.

docs/formats.md lists the columns. All files are written and read in blocks, so memory does not grow with the
plan. The same mixture gives the same bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_within
from tokmill.tasks.formats.files.manifests import Entry, Manifest, readable
from tokmill.tasks.formats.files.parquet import Columns, schema_of
from tokmill.tasks.store.verify import check_files

PLAN_FILE = "plan.parquet"
SHARES_FILE = "shares.parquet"
REQUEST_FILE = "request.parquet"
_ROW_GROUP = 1 << 20
SHARES_SCHEMA = schema_of(position="float64", source="uint16", requested="float64", given="float64")
REQUEST_SCHEMA = schema_of(
    segment="uint32",
    source="uint16",
    **dict.fromkeys(("start", "stop", "first", "last", "before"), "float64"),
)
_FEW = ["source", "shard", "epoch"]  # columns with few different values


class MixedSource(Entry):
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


class MixtureManifest(Manifest):
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

    FILE: ClassVar[str] = "mixture.json"
    TITLE: ClassVar[str] = "mixture"

    method: str
    temperature: float | None
    change: str | None
    seed: int
    num_documents: int
    num_tokens: int
    long_documents: str = "whole"
    curriculum: bool = False
    tolerance: float | None = None
    warnings: list[str] = Field(default=[])
    longest_document_tokens: int
    first_position: int = 0
    first_document_starts: tuple[int, ...] = ()
    sources: list[MixedSource]


@dataclass(frozen=True)
class Plan(Columns):
    """Rows of `plan.parquet`; all arrays have the same length n. The module describes them."""

    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    epoch: NDArray[np.uint16]
    num_tokens: NDArray[np.uint32]


PLAN_SCHEMA = Plan.schema()


class PlanWriter:
    """Writes `plan.parquet` block by block; the bytes do not depend on the blocks."""

    def __init__(self, file: pq.ParquetWriter) -> None:
        self._file = file
        self._held: list[Plan] = []
        self._num_held = 0

    def append(self, rows: Plan) -> None:
        """Add rows at the end."""
        self._held.append(rows)
        self._num_held += len(rows)
        if self._num_held >= _ROW_GROUP:
            self._write(self._num_held - self._num_held % _ROW_GROUP)

    def _write(self, number: int) -> None:
        held = Plan.joined(self._held)
        table = pa.table(held.rows(0, number).columns(), schema=PLAN_SCHEMA)
        self._file.write_table(table, row_group_size=_ROW_GROUP)
        self._held, self._num_held = [held.rows(number, len(held))], len(held) - number

    def finish(self) -> None:
        """Write the remaining rows."""
        if self._num_held:
            self._write(self._num_held)


@contextmanager
def write_plan(path: Path) -> Iterator[PlanWriter]:
    """A writer of the plan into the directory `path`."""
    with pq.ParquetWriter(path / PLAN_FILE, PLAN_SCHEMA, compression="zstd", use_dictionary=_FEW) as file:
        writer = PlanWriter(file)
        yield writer
        writer.finish()


@dataclass(frozen=True)
class ShareTable:
    """The requested and given tokens of s sources up to each of p points."""

    positions: NDArray[np.float64]  # float64 [p], tokens of the mixture
    requested: NDArray[np.float64]  # float64 [p, s], tokens
    given: NDArray[np.float64]  # float64 [p, s], tokens

    def along(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens requested of each source up to k positions, in straight lines: float64 [k, s]."""
        columns = [np.interp(positions, self.positions, requested) for requested in self.requested.T]
        return np.stack(columns, axis=1)

    def save(self, path: Path) -> None:
        """Write `shares.parquet` into the directory `path`."""
        sources = np.arange(self.given.shape[1], dtype=np.uint16)
        columns: list[NDArray[Any]] = [self.positions[:, None], sources, self.requested, self.given]
        _write_grid(path / SHARES_FILE, SHARES_SCHEMA, columns)


@dataclass(frozen=True)
class RequestTable:
    """The request of s sources over k segments of the run."""

    knots: NDArray[np.float64]  # float64 [k + 1], tokens of the run at which segments begin and end
    firsts: NDArray[np.float64]  # float64 [k, s], each source's share at each segment's start
    lasts: NDArray[np.float64]  # float64 [k, s], each source's share at each segment's end
    before: NDArray[np.float64]  # float64 [k, s], tokens requested of each source before each segment

    def save(self, path: Path) -> None:
        """Write `request.parquet` into the directory `path`."""
        segments, sources = (
            np.arange(n, dtype=t) for n, t in zip(self.firsts.shape, (np.uint32, np.uint16), strict=True)
        )
        columns = [segments[:, None], sources, self.knots[:-1, None], self.knots[1:, None]]
        columns += [self.firsts, self.lasts, self.before]
        _write_grid(path / REQUEST_FILE, REQUEST_SCHEMA, columns)

    def at(self, position: float) -> NDArray[np.float64]:
        """Tokens requested of each source up to a position: float64 [s]; constant after the end."""
        requested: NDArray[np.float64] = self.along(np.array([position]))[0]
        return requested

    def along(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same up to each of p positions: float64 [p, s]."""
        segment = np.clip(np.searchsorted(self.knots, positions, side="right") - 1, 0, len(self.firsts) - 1)
        width = (self.knots[segment + 1] - self.knots[segment])[:, None]
        passed = np.minimum((positions - self.knots[segment])[:, None], width)
        slope = (self.lasts[segment] - self.firsts[segment]) / width
        requested: NDArray[np.float64] = self.before[segment] + passed * (
            self.firsts[segment] + slope * passed / 2
        )
        return requested


def _write_grid(file: Path, schema: pa.Schema, columns: Sequence[NDArray[Any]]) -> None:
    """Write a table with a row for each row and column of arrays of two axes, or of one that is repeated."""
    flat = [values.ravel() for values in np.broadcast_arrays(*columns)]
    pq.write_table(pa.table(flat, schema=schema), file, row_group_size=_ROW_GROUP, compression="zstd")


def _read_grid(file: Path, schema: pa.Schema, what: str, num_columns: int) -> dict[str, NDArray[Any]]:
    check_files(file.parent, [file])
    with readable(file, what):
        table = pq.read_table(file, schema=schema)
    return {name: table[name].to_numpy().reshape(-1, num_columns) for name in schema.names}


@dataclass(frozen=True)
class Mixture:
    """A mixture in a directory: the manifest, and the plan, which is read on demand."""

    path: Path
    manifest: MixtureManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`."""
        return cls(path, MixtureManifest.open(path))

    @property
    def sources(self) -> list[str]:
        """Names of the sources; the plan's `source` is an index into them."""
        return [entry.source for entry in self.manifest.sources]

    def plan(self) -> Plan:
        """The whole plan; see `batches`."""
        return Plan.joined(list(self.batches()))

    def batches(self) -> Iterator[Plan]:
        """Yield the plan in order, at most a million rows at a time."""
        file, longest = self.path / PLAN_FILE, self.manifest.longest_document_tokens
        check_files(self.path, [file])
        with readable(file, "plan"), pq.ParquetFile(file) as parquet:
            if not parquet.schema_arrow.equals(PLAN_SCHEMA):
                raise StoreError(f"{file}: columns must be {PLAN_SCHEMA.names}; verify the artifact")
            for batch in parquet.iter_batches(batch_size=_ROW_GROUP):
                plan = Plan(*(batch.column(name).to_numpy() for name in PLAN_SCHEMA.names))
                check_within(file, "source of document", plan.source, least=0, below=len(self.sources))
                check_within(file, "tokens of document", plan.num_tokens, least=1, below=longest + 1)
                yield plan

    def request(self) -> RequestTable | None:
        """The request; None for a mixture from which documents were excluded."""
        file = self.path / REQUEST_FILE
        if not file.exists():
            return None
        grid = _read_grid(file, REQUEST_SCHEMA, "table of the request", len(self.sources))
        knots = np.append(grid["start"][:, 0], grid["stop"][-1, 0])
        return RequestTable(knots, grid["first"], grid["last"], grid["before"])

    def shares(self) -> ShareTable:
        """The requested and given tokens of each source, over the run."""
        grid = _read_grid(self.path / SHARES_FILE, SHARES_SCHEMA, "table of shares", len(self.sources))
        return ShareTable(grid["position"][:, 0], grid["requested"], grid["given"])
