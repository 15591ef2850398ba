"""A corpus on disk: statistics and digests of the sources' files, and their division into shards; no text.

docs/formats.md lists the tables. Rows count from 0; names are relative to a source's root, which the caller
gives when the text is read. A document is identified by (source, shard, ordinal): its ordinal in a segment is
`first_ordinal + row - first_row`. Bad documents have ordinals too, so they leave gaps.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.arrays import read_parquet
from tokmill.tasks.formats.files.manifests import Entry, Manifest, readable
from tokmill.tasks.formats.text.documents import Ints
from tokmill.tasks.formats.text.shards import CorpusPart, FileSegment, Selection, Shard
from tokmill.tasks.formats.text.sources import ReadOptions, SourceName, nearest
from tokmill.tasks.store.verify import check_files

FORMAT_VERSION = 1
HELD_OUT_SCHEMA = pa.schema({"source": pa.string(), "shard": pa.int64(), "ordinal": pa.int64()})
SELECTIONS_SCHEMA = pa.schema(
    {
        "source": pa.string(),
        "shard": pa.int64(),
        "of": pa.string(),
        "part": pa.string(),
        "seed": pa.uint64(),
        "below": pa.string(),  # up to 2**64, which no integer column holds
        "also": pa.list_(pa.uint64()),
    }
)
_TEXTS = {"source", "name", "file", "digest", "format", "compression", "reason", "detail", "excerpt"}
_TABLES = {
    "files": "source name size_bytes digest format compression num_documents num_bytes num_quarantined",
    "shards": "source shard digest num_documents num_bytes",
    "segments": "source shard file format first_ordinal first_row num_rows start end",
    "quarantine": "source file row reason detail excerpt",
}


def write_tables(out: Path, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
    """Write the tables that every corpus has into the directory `out`, from their rows."""
    for name, columns in _TABLES.items():
        types = {column: pa.string() if column in _TEXTS else pa.int64() for column in columns.split()}
        values = zip(*rows[name], strict=True) if rows[name] else [()] * len(types)
        arrays = [pa.array(column, kind) for column, kind in zip(values, types.values(), strict=True)]
        table = pa.Table.from_arrays(arrays, schema=pa.schema(types))
        pq.write_table(table, out / f"{name}.parquet", compression="zstd")


class SourceStats(Entry):
    """Statistics of a source."""

    num_documents: int  # kept documents
    num_bytes: int  # bytes of their text
    num_chars: int  # Unicode code points of their text
    num_words: int  # longest runs of characters other than white space
    num_files: int  # all files, including empty ones
    num_files_without_documents: int  # files that hold no document, kept or bad
    num_shards: int  # parts that the source is divided into
    num_quarantined: int  # documents that were left out
    quarantined: dict[str, int]  # the same, by reason


class CorpusSource(Entry):
    """One source in `corpus.json`."""

    name: SourceName
    options: ReadOptions
    stats: SourceStats


class CorpusManifest(Manifest):
    """The content of `corpus.json`."""

    FILE: ClassVar[str] = "corpus.json"
    TITLE: ClassVar[str] = "corpus"

    format_version: int = FORMAT_VERSION
    shard_bytes: int
    sources: list[CorpusSource]

    def metrics(self) -> dict[str, int]:
        """Return the sums over all sources, but of words, which are the audit's where people read them."""
        names = [name for name, field in SourceStats.model_fields.items() if field.annotation is int]
        names.remove("num_words")
        sums = {name: sum(getattr(source.stats, name) for source in self.sources) for name in names}
        return {"num_sources": len(self.sources), **sums}


class Corpus:
    """A published corpus, opened for reading; tables are read on first use."""

    def __init__(self, path: Path, manifest: CorpusManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._sources = {source.name: source for source in manifest.sources}

    @classmethod
    def open(cls, path: Path) -> "Corpus":
        """Open the corpus in a directory."""
        manifest = CorpusManifest.open(path)
        if manifest.format_version != FORMAT_VERSION:
            msg = f"{path}: corpus format {manifest.format_version}, not {FORMAT_VERSION}; ingest again"
            raise StoreError(msg)
        return cls(path, manifest)

    @property
    def sources(self) -> list[str]:
        """The sources' names, sorted."""
        return list(self._sources)

    def source_stats(self, source: str) -> SourceStats:
        """Return the statistics of a source."""
        return self._source(source).stats

    @property
    def part(self) -> CorpusPart | None:
        """The part of another corpus that this is; None if it is a whole one."""
        rule = next(iter(self._selections.values()), None)
        return None if rule is None else rule.part

    def shards(self, source: str) -> list[Shard]:
        """Return a source's shards in order of their index."""
        return self._shards[self._source(source).name]

    def pair(self, made: Sequence[Path], stage: str) -> dict[str, list[tuple[Shard, Path]]]:
        """Return each source's shards, each with the directory of the artifact that a stage made from it."""
        num_shards = sum(len(self.shards(source)) for source in self.sources)
        if num_shards != len(made):
            raise StoreError(
                f"{stage}: the corpus has {num_shards} shards and artifacts of {len(made)} were given; "
                "pass one for each, by source, then index"
            )
        remaining = iter(made)
        return {
            source: [(shard, next(remaining)) for shard in self.shards(source)] for source in self.sources
        }

    def file_digests(self) -> dict[tuple[str, str], str]:
        """The content digest of every file, by source and name."""
        rows = self.table("files").select(["source", "name", "digest"]).to_pylist()
        return {(row["source"], row["name"]): row["digest"] for row in rows}

    def table(self, name: str) -> Any:
        """Return one of the tables (files, shards, segments, quarantine, held_out) as a pyarrow table."""
        file = self.path / f"{name}.parquet"
        check_files(self.path, [file])
        with readable(file, "table of a corpus"):
            return read_parquet(file)

    def locate(self, source: str, shard: int, ordinals: Ints) -> tuple[list[str], Ints, Ints]:
        """Find documents in their files.

        Args:
            source: the source's name.
            shard: the shard's index.
            ordinals: int64[n], numbers of documents in the shard.

        Returns:
            The names of the shard's files, and for each document the index into those names and its row,
            both int64[n].
        """
        segments = self.shards(source)[shard].segments
        firsts = np.array([segment.first_ordinal for segment in segments], dtype=np.int64)
        num_rows = np.array([segment.num_rows for segment in segments], dtype=np.int64)
        rows = np.array([segment.first_row for segment in segments], dtype=np.int64)
        at = np.searchsorted(firsts, ordinals, side="right") - 1
        outside = (at < 0) | (ordinals - firsts[at] >= num_rows[at])
        if outside.any():
            wrong, last = int(ordinals[outside][0]), int(firsts[-1] + num_rows[-1]) - 1
            msg = f"shard {source}/{shard} has no document {wrong}; its ordinals go from 0 to {last}"
            raise StoreError(msg)
        return [segment.file for segment in segments], at, rows[at] + ordinals - firsts[at]

    def lookup(self, source: str, shard: int, ordinal: int) -> tuple[str, int]:
        """Return the file (relative to the source's root) and the row (from 0) of one document."""
        names, at, rows = self.locate(source, shard, np.array([ordinal], dtype=np.int64))
        return names[int(at[0])], int(rows[0])

    def _source(self, source: str) -> CorpusSource:
        if source not in self._sources:
            msg = f"the corpus has no source '{source}'; it has {', '.join(nearest(source, self.sources))}"
            raise StoreError(msg)
        return self._sources[source]

    @cached_property
    def _shards(self) -> Mapping[str, list[Shard]]:
        segments: dict[tuple[str, int], list[FileSegment]] = {}
        files = self.table("files").select(["source", "name", "compression"]).to_pylist()
        compressions = {(file["source"], file["name"]): file["compression"] for file in files}
        for row in self.table("segments").to_pylist():
            key = (row.pop("source"), row.pop("shard"))
            codec = compressions[key[0], row["file"]]
            segments.setdefault(key, []).append(FileSegment(**row, compression=codec))
        shards: dict[str, list[Shard]] = {name: [] for name in self._sources}
        for row in self.table("shards").to_pylist():
            source, index = row.pop("source"), row.pop("shard")
            about = {
                "options": self._sources[source].options,
                "segments": segments[source, index],
                "selection": self._selections.get((source, index)),
            }
            shards[source].append(Shard(source=source, index=index, **about, **row))
        return shards

    @cached_property
    def _selections(self) -> Mapping[tuple[str, int], Selection]:
        if not (self.path / "selections.parquet").exists():
            return {}
        rows = self.table("selections").to_pylist()
        return {(row.pop("source"), row.pop("shard")): Selection.model_validate(row) for row in rows}
