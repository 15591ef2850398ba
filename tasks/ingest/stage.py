"""ingest: read every document once, and publish statistics, digests and the division into shards.

The corpus holds statistics, digests and positions, but no text (see `tasks.formats.corpus`). Every document
of a source's files is either kept, or left out and counted under a reason. An empty document is kept, with 0
bytes. An empty file has no document and is counted. If all files of a source are empty, its `on_error`
decides between an error and a warning. The bounds of shards depend on the text (see
`tasks.formats.text.sharding`), never on the number of workers.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from tokmill.tasks.core.context import progress_reporter
from tokmill.tasks.core.errors import MachineError, SourceError
from tokmill.tasks.core.faults import out_of_memory, unreadable
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage
from tokmill.tasks.formats.corpus import CorpusManifest, CorpusSource, SourceStats
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.shards import (
    FileSegment,
    Limits,
    ShardHasher,
    default_shard_bytes,
    estimated_text_bytes,
    name_may_end,
)
from tokmill.tasks.formats.text.sources import Format, ReadOptions, SourceName, is_compressed
from tokmill.tasks.ingest.scan import NOTHING, FileScan, Stretch, scan_file, stretch_of, weight_of
from tokmill.tasks.kernels.text_size import TextSize
from tokmill.tasks.remote.location import Location, RemoteFile, located
from tokmill.tasks.remote.objects import stat
from tokmill.tokenizer.core.stopping import within_limit

# Reading waits for disks and runs code that releases the interpreter lock, so a few threads always help.
DEFAULT_WORKERS = 4


class IngestParams(Params):
    """How sources are read and divided."""

    shard_bytes: int | None = Field(
        default=None,
        ge=64 << 10,
        le=1 << 30,
        description=(
            "Approximate bytes of text per shard; a shard ends with a document, between a quarter and four "
            "times this size. A shard is the unit of work and of caching: with small shards less is made "
            "again after a change, but each costs some tenths of a second. The default follows the size of "
            "the files: 8 MiB for a corpus below 64 MiB, 32 below 512, 64 below 4 GiB, 256 below 64, "
            "else 1 GiB."
        ),
    )
    sources: dict[SourceName, ReadOptions] = Field(
        default={}, description="How each source's files are read; filled in from the profile's sources."
    )


File = Mapping[str, Any]
T = TypeVar("T")

_LOG = logging.getLogger(__name__)


def run(params: IngestParams, *, out: Path, files: Sequence[File], workers: int = DEFAULT_WORKERS) -> Outcome:
    """Read all files and write the corpus into `out`."""
    by_source = _by_source(params, files)
    limits = Limits(params.shard_bytes or default_shard_bytes(_text_bytes(files)))
    writer, scanned = CorpusWriter(limits), _Scanned(_text_bytes(files))
    for source, options in sorted(params.sources.items()):
        writer.begin(source, options)
        scans = _in_order(by_source[source], lambda file: _scan(file, params, limits, scanned.add), workers)
        for file, scan in zip(by_source[source], scans, strict=True):
            writer.add(scan, size_bytes=file["size"], digest=file["digest"])
    manifest = writer.write(out)
    for one in manifest.sources:
        _check_not_empty(one)
    return Outcome(
        metrics=manifest.metrics(), accounts=[_account(one.name, one.stats) for one in manifest.sources]
    )


def _text_bytes(files: Sequence[File]) -> int:
    """Return about how many bytes of text files have."""
    return sum(estimated_text_bytes(file["size"], compressed=is_compressed(file["name"])) for file in files)


class _Scanned:
    """Adds up what the threads have scanned of all files, and reports it."""

    def __init__(self, about_bytes: int) -> None:
        self._about_bytes = about_bytes
        self._num_bytes = self._num_documents = 0
        self._lock = threading.Lock()
        self._report = progress_reporter()

    def add(self, batch: FileBatch) -> None:
        """Note a batch of documents."""
        with self._lock:
            self._num_bytes += len(batch.data)
            self._num_documents += len(batch)
            total = max(self._about_bytes, self._num_bytes)
            self._report(self._num_bytes, total, "bytes", documents=self._num_documents)


def _by_source(params: IngestParams, files: Sequence[File]) -> dict[str, list[File]]:
    by_source: dict[str, list[File]] = {source: [] for source in params.sources}
    if not by_source:
        msg = "ingest: there are no sources; name at least one, e.g. [sources.english] files = ['data/*.txt']"
        raise SourceError(msg)
    for file in files:
        if file["source"] not in by_source:
            msg = f"ingest: {file['name']} is of source '{file['source']}', which the parameters lack"
            raise SourceError(msg)
        by_source[file["source"]].append(file)
    for source, its in by_source.items():
        if not its:
            msg = f"ingest: source '{source}' has no files; add files, or remove the source"
            raise SourceError(msg)
        its.sort(key=lambda file: str(file["name"]))
    return by_source


def _check_not_empty(source: CorpusSource) -> None:
    stats = source.stats
    if stats.num_documents or stats.num_quarantined:
        return
    holds = "its file holds" if stats.num_files == 1 else f"its {stats.num_files} files hold"
    problem = f"source '{source.name}': {holds} no document"
    if source.options.on_error == "fail":
        msg = f"{problem}; add text, remove the source, or set on_error = 'quarantine'"
        raise SourceError(msg)
    _LOG.warning("%s", problem)


def _scan(file: File, params: IngestParams, limits: Limits, scanned: Callable[[FileBatch], None]) -> FileScan:
    path, source = located(file["path"]), file["source"]
    try:
        scan = scan_file(path, file["name"], source, params.sources[source], limits, scanned)
        is_same = _is_as_found(path, file)
    except (SourceError, MachineError) as error:
        msg = f"source '{source}': {error}"
        raise type(error)(msg) from error
    except MemoryError as error:
        raise out_of_memory(f"source '{source}': {path}", error) from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_same:
        msg = f"source '{source}': {path} changed while it was read; run again when it is finished"
        raise SourceError(msg)
    return scan


def _is_as_found(path: Location, file: File) -> bool:
    """Whether a file's size and time, or an object's size and tag, are those with which it was found."""
    if isinstance(path, RemoteFile):
        state = stat(path.url)
        return (state.num_bytes, state.tag) == (file["size"], file["tag"])
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) == (file["size"], file["mtime_ns"])


def _in_order(items: Iterable[T], work: Callable[[T], FileScan], workers: int) -> Iterator[FileScan]:
    """Work on a few items at a time and yield the results in the items' order."""
    waiting: deque[Future[FileScan]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="ingest") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(within_limit(work), item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _account(source: str, stats: SourceStats) -> Account:
    quarantined = {f"quarantined:{reason}": number for reason, number in stats.quarantined.items()}
    num_in = stats.num_documents + stats.num_quarantined
    return Account(
        source=source, unit="documents", num_in=num_in, became={"kept": stats.num_documents, **quarantined}
    )


INGEST = Stage(verb="ingest", task="ingest", kind="corpus", version=4, params=IngestParams, run=run)


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
