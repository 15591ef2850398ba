"""One pass over one file: what it holds, what is bad in it, and where its shards lie.

`scan_file` is pure and may run in any thread. A large file comes back as finished shards, with nothing of
its text in memory; a small one comes back with its documents, to be grouped with its neighbours into one
shard.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tokmill.tasks.formats.text.columnar import BrokenFileError, largest_row_group
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.measures import TextSize, text_size
from tokmill.tasks.formats.text.quarantine import BadDocument, document_error
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sharding import Cutter, Limits, ShardHasher, limits_of_file, may_end
from tokmill.tasks.formats.text.sources import BY_BYTES, UTF_8, Format, ReadOptions, compression_of, format_of

NOTHING = TextSize(0, 0, 0, 0)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows of one file, from a kept document to a kept one.

    Attributes:
        first_row: the first document's row.
        num_rows: rows from the first document to the last, the bad ones between them included.
        start: where they begin, in bytes of the decompressed content; 0 where the format has no such
            positions.
        end: where they end; None where the format has no such positions.
        num_documents: kept documents.
        num_bytes: of their text.
    """

    first_row: int
    num_rows: int
    start: int
    end: int | None
    num_documents: int
    num_bytes: int

    def joined(self, after: "Stretch") -> "Stretch":
        """Return the stretch from here to the end of `after`."""
        return replace(
            self,
            num_rows=after.first_row + after.num_rows - self.first_row,
            end=after.end,
            num_documents=self.num_documents + after.num_documents,
            num_bytes=self.num_bytes + after.num_bytes,
        )


@dataclass(frozen=True)
class FileScan:
    """What one pass over a file found.

    Attributes:
        name: the file's name from the source's root.
        file_format: how it was read.
        size: the kept text.
        bad: the bad documents, in row order.
        shards: a large file's shards: where each lies, and its digest.
        batches: a small file's documents.
    """

    name: str
    file_format: Format
    size: TextSize
    bad: list[BadDocument]
    shards: list[tuple[Stretch, str]]
    batches: list[FileBatch]

    @property
    def is_empty(self) -> bool:
        """Whether the file holds neither documents nor anything bad."""
        return self.size.num_documents == 0 and not self.bad


def scan_file(path: Path, name: str, source: str, options: ReadOptions, limits: Limits) -> FileScan:
    """Read a file once.

    Args:
        path: where it lies.
        name: its name from the source's root.
        source: the source's name, for messages.
        options: how it is read.
        limits: sizes of shards.

    Raises:
        SourceError: the file cannot be read or lacks the text column.
        DocumentError: a document is bad and `options.on_error` is "fail"; the first of the file.
    """
    file_format = format_of(name, options)
    scan = _Scan(name, file_format, _limits(path, file_format, limits, options.encoding))
    for batch in read_file_batches(path, file_format, options):
        if batch.bad and options.on_error == "fail":
            raise document_error(source, name, file_format, batch.bad[0])
        scan.add(batch)
    return scan.finished()


def _limits(path: Path, file_format: Format, limits: Limits, encoding: str) -> Limits:
    # What can be reached only from the file's start.
    compressed = compression_of(path.name) is not None or file_format == "json" or encoding != UTF_8
    row_group_bytes = 0
    if file_format == "parquet" and not compressed:
        try:
            row_group_bytes = largest_row_group(path)
        except BrokenFileError:  # it is read, and named, in a moment
            row_group_bytes = 0
    size_bytes = path.stat().st_size if compressed else 0
    return limits_of_file(limits, size_bytes, compressed=compressed, row_group_bytes=row_group_bytes)


class _Scan:
    """Takes in a file's batches; keeps them while the file is small, cuts them up once it is large."""

    def __init__(self, name: str, file_format: Format, limits: Limits) -> None:
        self._name = name
        self._format = file_format
        self._limits = limits
        self._size = NOTHING
        self._bad: list[BadDocument] = []
        self._held: list[FileBatch] = []
        self._shards: _Shards | None = None

    def add(self, batch: FileBatch) -> None:
        self._bad.extend(batch.bad)
        if not len(batch):
            return
        self._size = self._size.plus(text_size(batch.data, batch.offsets))
        self._held.append(batch)
        if self._shards is None and weight_of(self._size) >= self._limits.is_large:
            self._shards = _Shards(self._format, self._limits)
        if self._shards is not None:
            for held in self._held:
                self._shards.add(held)
            self._held.clear()

    def finished(self) -> FileScan:
        shards = [] if self._shards is None else self._shards.finished()
        return FileScan(self._name, self._format, self._size, self._bad, shards, self._held)


class _Shards:
    """Cuts a large file's documents into shards."""

    def __init__(self, file_format: Format, limits: Limits) -> None:
        self._format = file_format
        self._limits = limits
        self._cutter = Cutter(limits)
        self._done: list[tuple[Stretch, str]] = []
        self._open: Stretch | None = None
        self._hasher = ShardHasher()

    def add(self, batch: FileBatch) -> None:
        cuts = self._cutter.cuts(batch.lengths + 1, may_end(batch.data, batch.offsets, self._limits))
        for start, stop in _ranges(cuts, len(batch)):
            if stop > start:
                self._extend(batch.cut(start, stop))
            if stop in cuts:
                self._close()

    def finished(self) -> list[tuple[Stretch, str]]:
        self._close()
        return self._done

    def _extend(self, batch: FileBatch) -> None:
        here = stretch_of(batch, self._format)
        self._open = here if self._open is None else self._open.joined(here)
        self._hasher.update(batch.rows - self._open.first_row, batch.offsets, batch.data)

    def _close(self) -> None:
        if self._open is not None:
            self._done.append((self._open, self._hasher.hexdigest()))
        self._open, self._hasher = None, ShardHasher()


def _ranges(cuts: Iterable[int], num: int) -> Iterator[tuple[int, int]]:
    start = 0
    for cut in cuts:
        yield start, cut
        start = cut
    if start < num:
        yield start, num


def stretch_of(batch: FileBatch, file_format: Format) -> Stretch:
    """Return where the documents of a batch lie; the batch has one at least."""
    first, last = int(batch.rows[0]), int(batch.rows[-1])
    by_bytes = batch.bounds is not None and file_format in BY_BYTES
    return Stretch(
        first_row=first,
        num_rows=last - first + 1,
        start=int(batch.bounds[0, 0]) if by_bytes and batch.bounds is not None else 0,
        end=int(batch.bounds[-1, 1]) if by_bytes and batch.bounds is not None else None,
        num_documents=len(batch),
        num_bytes=len(batch.data),
    )


def weight_of(size: TextSize) -> int:
    """Return what documents count in a shard: their bytes, and one more each."""
    return size.num_bytes + size.num_documents
