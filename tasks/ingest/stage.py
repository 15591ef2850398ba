"""ingest: read every document once, and publish statistics, digests and the division into shards.

The corpus holds statistics, digests and positions, but no text (see `tasks.formats.corpus`). Every document
of a source's files is either kept, or left out and counted under a reason. An empty document is kept, with 0
bytes. An empty file has no document and is counted. If all files of a source are empty, its `on_error`
decides between an error and a warning. Nothing depends on the number of workers.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from tokmill.tasks.core.context import progress_reporter
from tokmill.tasks.core.errors import MachineError, SourceError
from tokmill.tasks.core.faults import out_of_memory, unreadable
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage
from tokmill.tasks.formats.corpus import CorpusManifest, CorpusSource, SourceStats, write_tables
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.shards import Limits, default_shard_bytes, estimated_text_bytes
from tokmill.tasks.formats.text.sources import ReadOptions, SourceName, is_compressed
from tokmill.tasks.ingest.scan import NOTHING, FileScan, SourceShards, scan_file
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


File: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]

_LOG = logging.getLogger(__name__)


def run(params: IngestParams, *, out: Path, files: Sequence[File], workers: int = DEFAULT_WORKERS) -> Outcome:
    """Read all files and write the corpus into `out`."""
    by_source = _by_source(params, files)
    text_bytes = sum(
        estimated_text_bytes(file["size"], compressed=is_compressed(file["name"])) for file in files
    )
    limits = Limits(params.shard_bytes or default_shard_bytes(text_bytes))
    reader, sources = _Reader(params, limits, text_bytes), []
    rows: Rows = {"files": [], "shards": [], "segments": [], "quarantine": []}
    for source, its in by_source.items():
        sources.append(
            _collected(source, params.sources[source], its, reader.scans(its, workers), limits, rows)
        )
    manifest = CorpusManifest(shard_bytes=limits.average, sources=sources)
    write_tables(out, rows)
    manifest.save(out)
    for one in sources:
        _check_not_empty(one)
    return Outcome(metrics=manifest.metrics(), accounts=[_account(one.name, one.stats) for one in sources])


def _by_source(params: IngestParams, files: Sequence[File]) -> dict[str, list[File]]:
    if not params.sources:
        msg = "ingest: there are no sources; name at least one, e.g. [sources.english] files = ['data/*.txt']"
        raise SourceError(msg)
    by_source: dict[str, list[File]] = {source: [] for source in sorted(params.sources)}
    for file in sorted(files, key=lambda file: str(file["name"])):
        if file["source"] not in by_source:
            msg = f"ingest: {file['name']} is of source '{file['source']}', which the parameters lack"
            raise SourceError(msg)
        by_source[file["source"]].append(file)
    if empty := [source for source, its in by_source.items() if not its]:
        raise SourceError(f"ingest: source '{empty[0]}' has no files; add files, or remove the source")
    return by_source


class _Reader:
    """Scans files in threads, and reports what was scanned of all."""

    def __init__(self, params: IngestParams, limits: Limits, about_bytes: int) -> None:
        self._params, self._limits, self._about_bytes = params, limits, about_bytes
        self._num_bytes = self._num_documents = 0
        self._lock = threading.Lock()
        self._report = progress_reporter()

    def scans(self, files: Sequence[File], workers: int) -> Iterator[FileScan]:
        """Scan a few files at a time, and yield the scans in the order of the files."""
        waiting: deque[Future[FileScan]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="ingest") as pool:
            try:
                for file in files:
                    waiting.append(pool.submit(within_limit(self._scan), file))
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _scan(self, file: File) -> FileScan:
        path, source = located(file["path"]), file["source"]
        try:
            options = self._params.sources[source]
            scan = scan_file(path, file["name"], source, options, self._limits, self._note)
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

    def _note(self, batch: FileBatch) -> None:
        with self._lock:
            self._num_bytes += len(batch.data)
            self._num_documents += len(batch)
            total = max(self._about_bytes, self._num_bytes)
            self._report(self._num_bytes, total, "bytes", documents=self._num_documents)


def _is_as_found(path: Location, file: File) -> bool:
    """Whether a file's size and time, or an object's size and tag, are those with which it was found."""
    if isinstance(path, RemoteFile):
        state = stat(path.url)
        return (state.num_bytes, state.tag) == (file["size"], file["tag"])
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) == (file["size"], file["mtime_ns"])


def _collected(
    name: str,
    options: ReadOptions,
    files: Sequence[File],
    scans: Iterator[FileScan],
    limits: Limits,
    rows: Rows,
) -> CorpusSource:
    """Return a source's statistics, and add its rows to the corpus's tables."""
    size, num_without, quarantined, collector = NOTHING, 0, Counter[str](), SourceShards(limits)
    for file, scan in zip(files, scans, strict=True):
        size = size.plus(scan.size)
        num_without += not (scan.size.num_documents or scan.bad)
        quarantined.update(bad.reason for bad in scan.bad)
        collector.add(scan)
        sums = (scan.size.num_documents, scan.size.num_bytes, len(scan.bad))
        rows["files"].append((name, scan.name, file["size"], file["digest"], scan.format, scan.codec, *sums))
        rows["quarantine"] += [
            (name, scan.name, bad.row, bad.reason, bad.stable_detail, bad.excerpt) for bad in scan.bad
        ]
    for index, shard in enumerate(collector.shards):
        rows["shards"].append((name, index, shard.digest, shard.num_documents, shard.num_bytes))
        own = [segment.model_dump(exclude={"compression"}).values() for segment in shard.segments]
        rows["segments"] += [(name, index, *values) for values in own]
    stats = SourceStats(
        **size._asdict(),
        num_files=len(files),
        num_files_without_documents=num_without,
        num_shards=len(collector.shards),
        num_quarantined=quarantined.total(),
        quarantined=dict(sorted(quarantined.items())),
    )
    return CorpusSource(name=name, options=options, stats=stats)


def _check_not_empty(source: CorpusSource) -> None:
    stats = source.stats
    if stats.num_documents or stats.num_quarantined:
        return
    holds = "its file holds" if stats.num_files == 1 else f"its {stats.num_files} files hold"
    problem = f"source '{source.name}': {holds} no document"
    if source.options.on_error == "fail":
        raise SourceError(f"{problem}; add text, remove the source, or set on_error = 'quarantine'")
    _LOG.warning("%s", problem)


def _account(source: str, stats: SourceStats) -> Account:
    quarantined = {f"quarantined:{reason}": number for reason, number in stats.quarantined.items()}
    became = {"kept": stats.num_documents, **quarantined}
    return Account(source=source, unit="documents", num_in=sum(became.values()), became=became)


INGEST = Stage(verb="ingest", task="ingest", kind="corpus", version=4, params=IngestParams, run=run)
