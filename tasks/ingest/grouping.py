"""Put together a source's shards from the scans of its files, in order of file name.

The scan of a large file has its own shards. Small files are grouped into shards, and a group may continue
after a large file between them. `tasks.formats.text.sharding` defines where a group ends.
"""

from dataclasses import dataclass

from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.shard import FileSegment
from tokmill.tasks.formats.text.sharding import Limits, ShardHasher, name_may_end
from tokmill.tasks.formats.text.sources import Format
from tokmill.tasks.ingest.scanning import FileScan, Stretch, stretch_of, weight_of


@dataclass(frozen=True)
class Draft:
    """A shard without a number yet; shards are sorted by `place` (number of the first file, first row)."""

    place: tuple[int, int]
    digest: str
    segments: tuple[FileSegment, ...]
    num_documents: int
    num_bytes: int


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
