"""Write a corpus: collect its tables source by source, and write them in a fixed order at the end.

Put together a source's shards from the scans of its files, in order of file name.

The scan of a large file has its own shards. Small files are grouped into shards, and a group may continue
after a large file between them. `tasks.formats.text.sharding` defines where a group ends.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.formats.corpus import CorpusManifest, CorpusSource, SourceStats
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.shard import FileSegment
from tokmill.tasks.formats.text.sharding import Limits, ShardHasher, name_may_end
from tokmill.tasks.formats.text.sources import Format, ReadOptions
from tokmill.tasks.ingest.scan import NOTHING, FileScan, Stretch, stretch_of, weight_of
from tokmill.tasks.kernels.text_size import TextSize

_STRING, _INT = pa.string(), pa.int64()
_SCHEMAS: dict[str, pa.Schema] = {
    "files": pa.schema(
        {
            "source": _STRING,
            "name": _STRING,
            "size_bytes": _INT,
            "digest": _STRING,
            "format": _STRING,
            "compression": _STRING,
            "num_documents": _INT,
            "num_bytes": _INT,
            "num_quarantined": _INT,
        }
    ),
    "shards": pa.schema(
        {"source": _STRING, "shard": _INT, "digest": _STRING, "num_documents": _INT, "num_bytes": _INT}
    ),
    "segments": pa.schema(
        {
            "source": _STRING,
            "shard": _INT,
            "file": _STRING,
            "format": _STRING,
            "first_ordinal": _INT,
            "first_row": _INT,
            "num_rows": _INT,
            "start": _INT,
            "end": _INT,
        }
    ),
    "quarantine": pa.schema(
        {
            "source": _STRING,
            "file": _STRING,
            "row": _INT,
            "reason": _STRING,
            "detail": _STRING,
            "excerpt": _STRING,
        }
    ),
}


class _Source:
    """The rows collected for one source."""

    def __init__(self, name: str, options: ReadOptions, limits: Limits) -> None:
        self.name = name
        self.options = options
        self.grouper = Grouper(limits)
        self.size: TextSize = NOTHING
        self.num_files = 0
        self.num_files_without_documents = 0
        self.quarantined: Counter[str] = Counter()

    def stats(self, num_shards: int) -> SourceStats:
        return SourceStats(
            **self.size._asdict(),
            num_files=self.num_files,
            num_files_without_documents=self.num_files_without_documents,
            num_shards=num_shards,
            num_quarantined=self.quarantined.total(),
            quarantined=dict(sorted(self.quarantined.items())),
        )


@dataclass(frozen=True)
class Draft:
    """A shard without a number yet; shards are sorted by `place` (number of the first file, first row)."""

    place: tuple[int, int]
    digest: str
    segments: tuple[FileSegment, ...]
    num_documents: int
    num_bytes: int


class CorpusWriter:
    """Collects scans and writes the corpus."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sources: list[_Source] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _SCHEMAS}

    def begin(self, source: str, options: ReadOptions) -> None:
        """Begin the next source."""
        self._sources.append(_Source(source, options, self._limits))

    def add(self, scan: FileScan, *, size_bytes: int, digest: str) -> None:
        """Add the next file of the source, in order of names; `size_bytes` and `digest` are the file's."""
        source = self._sources[-1]
        source.num_files += 1
        source.num_files_without_documents += scan.is_empty
        source.size = source.size.plus(scan.size)
        source.quarantined.update(bad.reason for bad in scan.bad)
        source.grouper.add(scan)
        about = (
            scan.file_format,
            scan.codec,
            scan.size.num_documents,
            scan.size.num_bytes,
            len(scan.bad),
        )
        self._rows["files"].append((source.name, scan.name, size_bytes, digest, *about))
        self._rows["quarantine"] += [
            (source.name, scan.name, bad.row, bad.reason, bad.stable_detail, bad.excerpt) for bad in scan.bad
        ]

    def write(self, out: Path) -> CorpusManifest:
        """Write the manifest and the tables into the directory `out`."""
        sources = []
        for source in self._sources:
            drafts = source.grouper.finished()
            self._add_shards(source.name, drafts)
            sources.append(
                CorpusSource(name=source.name, options=source.options, stats=source.stats(len(drafts)))
            )
        manifest = CorpusManifest(shard_bytes=self._limits.average, sources=sources)
        for name, schema in _SCHEMAS.items():
            table = _table(self._rows[name], schema)
            pq.write_table(table, out / f"{name}.parquet", compression="zstd")
        manifest.save(out)
        return manifest

    def _add_shards(self, source: str, drafts: list[Draft]) -> None:
        for index, draft in enumerate(drafts):
            self._rows["shards"].append((source, index, draft.digest, draft.num_documents, draft.num_bytes))
            for segment in draft.segments:
                self._rows["segments"].append(
                    (source, index, *segment.model_dump(exclude={"compression"}).values())
                )


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class Grouper:
    """Collects the scans of one source's files, in order, into shards."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._done: list[Draft] = []
        self._num_files = 0
        self._group = _Group()

    def add(self, scan: FileScan) -> None:
        """Add the next file, in order of names."""
        place = self._num_files
        self._num_files += 1
        for stretch, digest in scan.shards:
            segment = segment_of(scan.name, scan.file_format, stretch, 0)
            drafted = Draft(
                (place, stretch.first_row), digest, (segment,), stretch.num_documents, stretch.num_bytes
            )
            self._done.append(drafted)
        if scan.batches:
            self._add_small(scan, place)

    def _add_small(self, scan: FileScan, place: int) -> None:
        weight = weight_of(scan.size)
        if self._group.weight + weight > self._limits.maximum:
            self._close()
        self._group.add(scan, place, weight)
        ends = self._group.weight >= self._limits.minimum
        if ends and name_may_end(scan.name, weight, self._limits):
            self._close()

    def _close(self) -> None:
        if self._group.segments:
            self._done.append(self._group.draft())
        self._group = _Group()

    def finished(self) -> list[Draft]:
        """Return all shards in order."""
        self._close()
        return sorted(self._done, key=lambda draft: draft.place)


class _Group:
    """Small files that make one shard."""

    def __init__(self) -> None:
        self.weight = 0
        self.segments: list[FileSegment] = []
        self._hasher = ShardHasher()
        self._place = (0, 0)
        self._num_rows = 0
        self._num_documents = 0
        self._num_bytes = 0

    def add(self, scan: FileScan, place: int, weight: int) -> None:
        stretch = _whole(scan.batches, scan.file_format)
        if not self.segments:
            self._place = (place, stretch.first_row)
        for batch in scan.batches:
            ordinals = batch.rows - stretch.first_row + self._num_rows
            self._hasher.update(ordinals, batch.offsets, batch.data)
        self.segments.append(segment_of(scan.name, scan.file_format, stretch, self._num_rows))
        self._num_rows += stretch.num_rows
        self._num_documents += stretch.num_documents
        self._num_bytes += stretch.num_bytes
        self.weight += weight

    def draft(self) -> Draft:
        digest = self._hasher.hexdigest()
        return Draft(self._place, digest, tuple(self.segments), self._num_documents, self._num_bytes)


def _whole(batches: list[FileBatch], file_format: Format) -> Stretch:
    first, *others = (stretch_of(batch, file_format) for batch in batches)
    for other in others:
        first = first.joined(other)
    return first


def segment_of(name: str, file_format: Format, stretch: Stretch, first_ordinal: int) -> FileSegment:
    """Return a stretch of a file as a segment of a shard."""
    return FileSegment(
        file=name,
        format=file_format,
        first_ordinal=first_ordinal,
        first_row=stretch.first_row,
        num_rows=stretch.num_rows,
        start=None if stretch.end is None else stretch.start,
        end=stretch.end,
    )
