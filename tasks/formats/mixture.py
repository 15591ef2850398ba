"""A mixture on disk: its documents and their order, shares and request; no tokens are copied.

docs/formats.md lists the columns. All files are written and read in blocks, so memory does not grow with the
plan. The same mixture gives the same bytes. A ledger holds the documents that a run has consumed of a
mixture, so that another can continue it; in another encoding they are found by their shard's digest.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.formats.files.arrays import (
    Columns,
    columns_of,
    open_vector,
    read_columns,
    schema_of,
    write_row_groups,
)
from tokmill.tasks.formats.files.indices import check_within, untrue
from tokmill.tasks.formats.files.manifests import Entry, Manifest, readable
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
    """One source of a mixture."""

    source: str
    num_documents: int  # of the source
    num_tokens: int  # of the source
    requested_share: float  # requested share of the mixture's tokens
    quota_tokens: int  # the same in tokens
    share: float  # actual share of the mixture's tokens
    drawn_documents: int  # documents in the mixture, including repetitions
    drawn_tokens: int  # their tokens; within one document of `quota_tokens`
    unique_documents: int  # documents that occur at least once
    unique_tokens: int  # their tokens, counted once
    epochs: float  # drawn_tokens / num_tokens
    max_repetition: float  # the most times that it may be drawn
    min_epochs: float  # the fewest times that it must be drawn
    limits: bool  # whether its `max_repetition` keeps its share, or the total, from being larger
    given_before_tokens: int = 0  # tokens that it gave in the run before this mixture
    most_ahead_tokens: float  # the most tokens that it was ahead of the request, at any point of the plan
    most_behind_tokens: float  # the most tokens that it was behind the request
    short_tokens: float = 0.0  # tokens by which it stops short of its request; 0 if less than one
    # Tokens of the run before it stopped: from there on the other sources divide what it leaves, and may be
    # ahead by as much. None if it does not stop short.
    short_from: int | None = None


class MixtureManifest(Manifest):
    """The content of `mixture.json`."""

    FILE: ClassVar[str] = "mixture.json"
    TITLE: ClassVar[str] = "mixture"

    method: str  # the rule that gave the shares, or "schedule"
    temperature: float | None  # T if the rule is "temperature", else None
    change: str | None  # how a schedule's shares change between points; None without a schedule
    seed: int  # seed of the order
    num_documents: int  # rows of the plan
    num_tokens: int  # their tokens
    long_documents: str = "whole"  # or "split" if each source's last document is cut at its quota
    curriculum: bool = False  # whether a curriculum decides the order of documents
    tolerance: float | None = None  # allowed difference from the request, as a fraction of it
    warnings: list[str] = Field(default=[])  # the requests that are missed by more than that
    longest_document_tokens: int  # tokens of the longest document drawn, or refused at a source's stop
    first_position: int = 0  # tokens of the run before this mixture; 0 if it begins the run
    # For each of the plan's first rows that is the rest of a document that an earlier mixture began, the
    # token of the document at which it starts.
    first_document_starts: tuple[int, ...] = ()
    sources: list[MixedSource]  # in the encoded manifest's order


@dataclass(frozen=True)
class Plan(Columns):
    """Rows of `plan.parquet`; all arrays have the same length."""

    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    epoch: NDArray[np.uint16]
    num_tokens: NDArray[np.uint32]


PLAN_SCHEMA = Plan.schema()


@contextmanager
def write_plan(path: Path) -> Iterator[Callable[[Plan], None]]:
    """A writer of rows of the plan into the directory `path`."""
    with write_row_groups(path / PLAN_FILE, PLAN_SCHEMA, _ROW_GROUP, use_dictionary=_FEW) as append:
        yield lambda rows: append(pa.table(rows.columns(), schema=PLAN_SCHEMA))


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
        sources = np.arange(self.given.shape[1])
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
        segments, sources = (np.arange(number) for number in self.firsts.shape)
        starts, stops = self.knots[:-1, None], self.knots[1:, None]
        columns = [segments[:, None], sources, starts, stops, self.firsts, self.lasts, self.before]
        _write_grid(path / REQUEST_FILE, REQUEST_SCHEMA, columns)

    def at(self, position: float) -> NDArray[np.float64]:
        """Tokens requested of each source up to a position: float64 [s]; constant after the end."""
        return np.asarray(self.along(np.array([position]))[0])

    def along(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same up to each of p positions: float64 [p, s]."""
        segment = np.clip(np.searchsorted(self.knots, positions, side="right") - 1, 0, len(self.firsts) - 1)
        width = (self.knots[segment + 1] - self.knots[segment])[:, None]
        passed = np.minimum((positions - self.knots[segment])[:, None], width)
        slope = (self.lasts[segment] - self.firsts[segment]) / width
        return np.asarray(self.before[segment] + passed * (self.firsts[segment] + slope * passed / 2))


def _write_grid(file: Path, schema: pa.Schema, columns: Sequence[NDArray[Any]]) -> None:
    """Write a table with a row for each row and column of arrays of two axes, or of one that is repeated."""
    grids = zip(np.broadcast_arrays(*columns), schema, strict=True)
    flat = [pa.array(values.ravel(), field.type) for values, field in grids]
    pq.write_table(pa.table(flat, schema=schema), file, row_group_size=_ROW_GROUP, compression="zstd")


def _read_grid(file: Path, schema: pa.Schema, what: str, num_columns: int) -> dict[str, NDArray[Any]]:
    check_files(file.parent, [file])
    columns = read_columns(file, schema, what)
    return {name: values.reshape(-1, num_columns) for name, values in columns.items()}


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
                raise untrue(file, f"columns must be {PLAN_SCHEMA.names}")
            for batch in parquet.iter_batches(batch_size=_ROW_GROUP):
                plan = Plan(**columns_of(file, batch, PLAN_SCHEMA))
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


CONSUMED_FILE = "consumed.npy"
TAKEN_DOWN = (1 << 16) - 1
"""The count of a document that was taken down, and is never drawn again."""


class LedgerShard(Entry):
    """One shard: its content digest, and where its documents are in `consumed.npy`."""

    digest: str
    first: int
    num_documents: int
    num_consumed: int


class LedgerSource(Entry):
    """One source."""

    source: str
    given_tokens: int  # tokens of it that were consumed, including repetitions
    requested_tokens: float  # tokens of it that were requested up to the ledger's position
    shards: list[LedgerShard]


class CutDocument(Entry):
    """A part that was not consumed of a document that was begun."""

    source: str
    digest: str  # content digest of its shard
    document: int  # its position in the shard
    epoch: int  # how often it was drawn before
    start: int  # the part's first token in the document
    num_tokens: int  # the part's tokens


class LedgerManifest(Manifest):
    """The content of `ledger.json`."""

    FILE: ClassVar[str] = "ledger.json"
    TITLE: ClassVar[str] = "ledger"

    mixture: str  # content digest of the mixture that was consumed
    read_tokens: int  # that the run has read, from its very beginning, with those that rearranging added
    consumed_tokens: int  # the documents' tokens among them
    position: int  # `consumed_tokens` and the parts in `cuts`, as begun documents count as consumed
    cuts: tuple[CutDocument, ...]  # what remains of begun documents; they come first in the next mixture
    sources: list[LedgerSource]  # the mixture's sources, in its order


@dataclass(frozen=True)
class Ledger:
    """A ledger in a directory."""

    path: Path
    manifest: LedgerManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the ledger in the directory `path`."""
        return cls(path, LedgerManifest.open(path))

    @cached_property
    def by_source(self) -> dict[str, LedgerSource]:
        """The sources by name."""
        return {entry.source: entry for entry in self.manifest.sources}

    def matched(
        self, source: str, digests: Iterable[str]
    ) -> tuple[list[LedgerShard | None], list[LedgerShard]]:
        """Find the shards of a source by their content digests; equal shards are matched in order."""
        known = self.by_source.get(source)
        left: dict[str, deque[LedgerShard]] = {}
        for shard in known.shards if known else []:
            left.setdefault(shard.digest, deque()).append(shard)
        found = [left[digest].popleft() if left.get(digest) else None for digest in digests]
        return found, [shard for waiting in left.values() for shard in waiting]

    def consumed(self, shard: LedgerShard) -> NDArray[np.uint16]:
        """How often each document of a shard was consumed, memory-mapped: uint16 [d]."""
        stop = shard.first + shard.num_documents
        counts = open_vector(self.path / CONSUMED_FILE, np.uint16)
        if len(counts) < stop:
            raise untrue(self.path / CONSUMED_FILE, f"holds {len(counts)} values, and {stop} are needed")
        return counts[shard.first : stop]
