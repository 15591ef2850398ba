"""Scan one file in one pass: its documents, its bad documents, and the bounds of its shards.

The scan of a large file has finished shards and none of its text; that of a small file has its documents,
which are grouped with neighbouring files into a shard. A damaged compressed file is scanned again up to its
last sound frame, since a frame's checksum comes at its end.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from tokmill.tasks.core.errors import DocumentError, SourceError
from tokmill.tasks.formats.text.columnar import largest_row_group
from tokmill.tasks.formats.text.content import Span, damage_of, size_of
from tokmill.tasks.formats.text.detection import Contents, UnsupportedFileError, contents_of
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.quarantine import BadDocument, BrokenFileError, document_error
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import Cutter, FileSegment, Limits, ShardHasher, may_end, name_may_end
from tokmill.tasks.formats.text.sources import BY_BYTES, UTF_8, Format, ReadOptions, format_by_name
from tokmill.tasks.kernels.text_size import TextSize, text_size
from tokmill.tasks.remote.location import Location

NOTHING = TextSize(0, 0, 0, 0)


class DraftedShard:
    """A shard while documents are added to it: the segments that hold them, and their digest."""

    def __init__(self) -> None:
        self.segments: list[FileSegment] = []
        self.num_documents = self.num_bytes = 0
        self._hasher = ShardHasher()

    @property
    def weight(self) -> int:
        """Bytes of text, and one more per document."""
        return self.num_bytes + self.num_documents

    @property
    def digest(self) -> str:
        """Digest of the documents so far."""
        return self._hasher.hexdigest()

    def add(self, name: str, file_format: Format, batch: FileBatch) -> None:
        """Add the next documents of a file, at least one."""
        first, stop = int(batch.rows[0]), int(batch.rows[-1]) + 1
        start = end = None
        if batch.bounds is not None and file_format in BY_BYTES:
            start, end = int(batch.bounds[0, 0]), int(batch.bounds[-1, 1])
        if self.segments and self.segments[-1].file == name:
            more = {"num_rows": stop - self.segments[-1].first_row, "end": end}
            self.segments[-1] = self.segments[-1].model_copy(update=more)
        else:
            ordinal = self.segments[-1].first_ordinal + self.segments[-1].num_rows if self.segments else 0
            place = {"first_ordinal": ordinal, "first_row": first, "num_rows": stop - first}
            self.segments.append(FileSegment(file=name, format=file_format, **place, start=start, end=end))
        segment = self.segments[-1]
        ordinals = batch.rows + (segment.first_ordinal - segment.first_row)
        self._hasher.update(ordinals, batch.offsets, batch.data)
        self.num_documents += len(batch)
        self.num_bytes += len(batch.data)


class FileScan:
    """The result of one pass over a file, which is divided into shards once it is large.

    Attributes:
        name: the file's path relative to the source's root.
        format: in which it was read.
        codec: its compression, or None.
        size: the kept text.
        bad: the bad documents, in row order.
        shards: those of a large file.
        batches: the documents of a small file.
    """

    def __init__(self, name: str, contents: Contents, limits: Limits) -> None:
        self.name, (self.format, self.codec), self._limits = name, contents, limits
        self.size = NOTHING
        self.bad: list[BadDocument] = []
        self.batches: list[FileBatch] = []
        self.shards: list[DraftedShard] = []
        self._cutter: Cutter | None = None
        self._open: DraftedShard | None = None

    def add(self, batch: FileBatch) -> None:
        """Add what the reader yields next."""
        self.bad.extend(batch.bad)
        if not len(batch):
            return
        self.size = self.size.plus(text_size(batch.data, batch.offsets))
        self.batches.append(batch)
        if self._cutter is None and weight_of(self.size) >= self._limits.own_shards_bytes:
            self._cutter = Cutter(self._limits)
        while self._cutter is not None and self.batches:
            self._cut(self.batches.pop(0), self._cutter)

    def _cut(self, batch: FileBatch, cutter: Cutter) -> None:
        cuts = cutter.cuts(batch.lengths + 1, may_end(batch.data, batch.offsets, self._limits))
        for start, stop in pairwise(sorted({0, *cuts, len(batch)})):
            if start in cuts or self._open is None:
                self._open = DraftedShard()
                self.shards.append(self._open)
            self._open.add(self.name, self.format, batch.cut(start, stop))
        if len(batch) in cuts:
            self._open = None


class SourceShards:
    """Collects the scans of one source's files, in order of names, into shards.

    Small files are grouped, and a group may continue after a large file between them; shards are in the order
    of their first documents.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._group: DraftedShard | None = None
        self.shards: list[DraftedShard] = []

    def add(self, scan: FileScan) -> None:
        """Add the next file."""
        self.shards += scan.shards
        if not scan.batches:
            return
        weight = weight_of(scan.size)
        if self._group is None or self._group.weight + weight > self._limits.maximum:
            self._group = DraftedShard()
            self.shards.append(self._group)
        for batch in scan.batches:
            self._group.add(scan.name, scan.format, batch)
        if self._group.weight >= self._limits.minimum and name_may_end(scan.name, weight, self._limits):
            self._group = None


def weight_of(size: TextSize) -> int:
    """Return the size of documents for the bounds of shards: their bytes, plus one per document."""
    return size.num_bytes + size.num_documents


class _UnsoundError(Exception):
    """A compressed file is damaged, and documents that were scanned may be wrong."""

    def __init__(self, sound_bytes: int | None) -> None:
        super().__init__()
        self.sound_bytes = sound_bytes


def scan_file(
    path: Location,
    name: str,
    source: str,
    options: ReadOptions,
    limits: Limits,
    scanned: Callable[[FileBatch], None] = lambda batch: None,
) -> FileScan:
    """Read a file once."""
    try:
        contents = contents_of(path, options)
    except UnsupportedFileError as error:
        bad = BadDocument(0, "unsupported_format", "", error.detail)
        if options.on_error == "fail":
            raise document_error(source, name, "text", bad) from error
        by_name = format_by_name(name) if options.format == "auto" else options.format
        scan = FileScan(name, Contents(by_name, None), limits)
        scan.bad.append(bad)
        return scan
    limits = _limits(path, contents, limits, options.encoding)
    try:
        scan = FileScan(name, contents, limits)
        return _scanned(path, scan, source, options, scanned, Span(codec=contents.codec))
    except _UnsoundError as error:
        sound_bytes = error.sound_bytes
    except (SourceError, DocumentError):
        damage = damage_of(path)  # which may be the reason
        if damage is None:
            raise
        sound_bytes = damage.sound_bytes
    span = Span(sound_bytes=sound_bytes, codec=contents.codec)
    return _scanned(path, FileScan(name, contents, limits), source, options, lambda batch: None, span)


def _scanned(
    path: Location,
    scan: FileScan,
    source: str,
    options: ReadOptions,
    scanned: Callable[[FileBatch], None],
    span: Span,
) -> FileScan:
    for batch in read_file_batches(path, scan.format, options, span):
        if batch.sound_bytes is not None and span.sound_bytes is None:
            raise _UnsoundError(batch.sound_bytes)
        if batch.bad and options.on_error == "fail":
            raise document_error(source, scan.name, scan.format, batch.bad[0])
        scan.add(batch)
        scanned(batch)
    # The readers of these formats stop early at some faults, before they see a checksum.
    if (
        scan.bad
        and scan.format in ("json", "csv")
        and span.sound_bytes is None
        and (damage := damage_of(path))
    ):
        raise _UnsoundError(damage.sound_bytes)
    return scan


def _limits(path: Location, contents: Contents, limits: Limits, encoding: str) -> Limits:
    # The format can only be read from the start of the file.
    compressed = contents.codec is not None or contents.format == "json" or encoding != UTF_8
    row_group_bytes = 0
    if contents.format == "parquet" and not compressed:
        with suppress(BrokenFileError):  # reading the file reports this error with its name
            row_group_bytes = largest_row_group(path)
    size_bytes = size_of(path) if compressed else 0
    return limits.of_file(size_bytes, compressed=compressed, row_group_bytes=row_group_bytes)
