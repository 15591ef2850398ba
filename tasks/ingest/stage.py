"""ingest: read every document once, and publish statistics, digests and the division into shards.

The corpus holds statistics, digests and positions, but no text (see `tasks.formats.corpus`). Every document
of a source's files is either kept, or left out and counted under a reason. An empty document is kept, with 0
bytes. An empty file has no document and is counted. If all files of a source are empty, its `on_error`
decides between an error and a warning. The bounds of shards depend on the text (see
`tasks.formats.text.sharding`), never on the number of workers.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from tokmill.tasks.core.context import progress_reporter
from tokmill.tasks.core.errors import MachineError, SourceError
from tokmill.tasks.core.faults import out_of_memory, unreadable
from tokmill.tasks.core.stage import Account, Outcome, Params, Stage
from tokmill.tasks.formats.corpus import CorpusSource, SourceStats
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.sharding import Limits, default_shard_bytes, estimated_text_bytes
from tokmill.tasks.formats.text.sources import ReadOptions, SourceName, is_compressed
from tokmill.tasks.ingest.scan import FileScan, scan_file
from tokmill.tasks.ingest.writer import CorpusWriter
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
