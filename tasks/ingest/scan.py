"""Scan one file in one pass: its documents, its bad documents, and the bounds of its shards.

`scan_file` is pure and may run in any thread. The scan of a large file has finished shards and none of its
text; the scan of a small file has its documents, which are then grouped with neighbouring files into a shard.
A damaged compressed file is scanned again up to its last sound frame, since a frame's checksum comes at its
end.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tokmill.tasks.core.errors import DocumentError, SourceError
from tokmill.tasks.formats.text.columnar import largest_row_group
from tokmill.tasks.formats.text.content import Span, damage_of, size_of
from tokmill.tasks.formats.text.detection import Contents, UnsupportedFileError, contents_of
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.quarantine import BadDocument, BrokenFileError, document_error
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import Cutter, Limits, ShardHasher, limits_of_file, may_end
from tokmill.tasks.formats.text.sources import BY_BYTES, UTF_8, Format, ReadOptions, format_by_name
from tokmill.tasks.kernels.text_size import TextSize, text_size
from tokmill.tasks.remote.location import Location

NOTHING = TextSize(0, 0, 0, 0)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rows of one file, from a kept document to a kept one."""

    first_row: int  # the first document's row
    num_rows: int  # rows from the first document to the last, including bad ones between them
    start: int  # byte of the decompressed content where they begin; 0 where the format has no such positions
    end: int | None  # byte where they end; None where the format has no such positions
    num_documents: int  # kept documents
    num_bytes: int  # bytes of their text

    def joined(self, after: "Stretch") -> "Stretch":
        """Return the stretch from the start of this one to the end of `after`."""
        return replace(
            self,
            num_rows=after.first_row + after.num_rows - self.first_row,
            end=after.end,
            num_documents=self.num_documents + after.num_documents,
            num_bytes=self.num_bytes + after.num_bytes,
        )


@dataclass(frozen=True)
class FileScan:
    """The result of one pass over a file."""

    name: str  # the file's path relative to the source's root
    file_format: Format  # format in which it was read
    codec: str | None  # its compression, or None
    size: TextSize  # the kept text
    bad: list[BadDocument]  # the bad documents, in row order
    shards: list[tuple[Stretch, str]]  # the shards of a large file: the stretch and digest of each
    batches: list[FileBatch]  # the documents of a small file

    @property
    def is_empty(self) -> bool:
        """Whether the file has neither documents nor bad documents."""
        return self.size.num_documents == 0 and not self.bad


class _UnsoundError(Exception):
    """A compressed file is damaged, and documents that were scanned may be wrong."""

    def __init__(self, sound_bytes: int | None) -> None:
        super().__init__()
        self.sound_bytes = sound_bytes


def _not_told(batch: FileBatch) -> None:
    """Do nothing."""


def scan_file(
    path: Location,
    name: str,
    source: str,
    options: ReadOptions,
    limits: Limits,
    scanned: Callable[[FileBatch], None] = _not_told,
) -> FileScan:
    """Read a file once."""
    try:
        contents = contents_of(path, options)
    except UnsupportedFileError as error:
        return _unsupported(name, source, options, error)
    scan = partial(_Scan, name, contents, _limits(path, contents, limits, options.encoding))
    try:
        return _scanned(path, scan(), source, options, scanned, Span(codec=contents.codec))
    except _UnsoundError as error:
        sound_bytes = error.sound_bytes
    except (SourceError, DocumentError):
        damage = damage_of(path)  # which may be the reason
        if damage is None:
            raise
        sound_bytes = damage.sound_bytes
    return _scanned(
        path, scan(), source, options, _not_told, Span(sound_bytes=sound_bytes, codec=contents.codec)
    )


def _unsupported(name: str, source: str, options: ReadOptions, error: UnsupportedFileError) -> FileScan:
    bad = BadDocument(0, "unsupported_format", "", error.detail)
    if options.on_error == "fail":
        raise document_error(source, name, "text", bad) from error
    file_format = format_by_name(name) if options.format == "auto" else options.format
    return FileScan(name, file_format, None, NOTHING, [bad], [], [])


def _scanned(
    path: Location,
    scan: "_Scan",
    source: str,
    options: ReadOptions,
    scanned: Callable[[FileBatch], None],
    span: Span,
) -> FileScan:
    file_format = scan.contents.format
    for batch in read_file_batches(path, file_format, options, span):
        if batch.sound_bytes is not None and span.sound_bytes is None:
            raise _UnsoundError(batch.sound_bytes)
        if batch.bad and options.on_error == "fail":
            raise document_error(source, scan.name, file_format, batch.bad[0])
        scan.add(batch)
        scanned(batch)
    finished = scan.finished()
    # The readers of these formats stop early at some faults, before they see a checksum.
    if finished.bad and file_format in ("json", "csv") and span.sound_bytes is None:
        damage = damage_of(path)
        if damage is not None:
            raise _UnsoundError(damage.sound_bytes)
    return finished


def _limits(path: Location, contents: Contents, limits: Limits, encoding: str) -> Limits:
    # The format can only be read from the start of the file.
    compressed = contents.codec is not None or contents.format == "json" or encoding != UTF_8
    row_group_bytes = 0
    if contents.format == "parquet" and not compressed:
        try:
            row_group_bytes = largest_row_group(path)
        except BrokenFileError:  # reading the file reports this error with its name
            row_group_bytes = 0
    size_bytes = size_of(path) if compressed else 0
    return limits_of_file(limits, size_bytes, compressed=compressed, row_group_bytes=row_group_bytes)


class _Scan:
    """Collects a file's batches, and divides them into shards once the file is large."""

    def __init__(self, name: str, contents: Contents, limits: Limits) -> None:
        self.name = name
        self.contents = contents
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
        if self._shards is None and weight_of(self._size) >= self._limits.own_shards_bytes:
            self._shards = _Shards(self.contents.format, self._limits)
        if self._shards is not None:
            for held in self._held:
                self._shards.add(held)
            self._held.clear()

    def finished(self) -> FileScan:
        shards = [] if self._shards is None else self._shards.finished()
        return FileScan(self.name, *self.contents, self._size, self._bad, shards, self._held)


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
    """Return the stretch of a batch with at least one document."""
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
    """Return the size of documents for the bounds of shards: their bytes, plus one per document."""
    return size.num_bytes + size.num_documents
