"""A shard: a bounded part of a source's text, identified by content, and read by each stage that needs it.

A shard lists the segments of files that hold its documents. Reading it to the end verifies that the documents
have not changed since they were ingested, so a stage must read to the end before it publishes anything. A
thread reads ahead of the consumer.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.pipelining import read_ahead
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.documents import BATCH_BYTES, ArrowArray, DocumentBatch, offsets_of
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sharding import Selection, ShardHasher
from tokmill.tasks.formats.text.sources import Format, ReadOptions
from tokmill.tasks.remote.location import below

# With so many batches in memory, including the consumer's, the reading thread waits.
_AHEAD = 3
# Smaller than the later batches, so that the consumer starts early.
_FIRST_BATCH_BYTES = 128 << 10


class FileSegment(BaseModel):
    """Consecutive rows of one file that belong to a shard.

    Attributes:
        file: path relative to the source's root.
        format: how the file is read.
        first_ordinal: ordinal in the shard of the first row.
        first_row: that row's number in the file, from 0.
        num_rows: rows, including bad ones.
        start: byte of the decompressed content where they begin; None where the format has no such
            positions.
        end: byte where they end, or None.
        compression: the file's, or None; not in the corpus's table of segments, but in that of files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    format: Format
    first_ordinal: int
    first_row: int
    num_rows: int
    start: int | None = None
    end: int | None = None
    compression: str | None = None

    def span(self) -> Span:
        """Return the span to read."""
        return Span(self.first_row, self.num_rows, self.start or 0, self.end, codec=self.compression)


class Shard(BaseModel):
    """A part of a source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str  # the source's name
    index: int  # number in the source, from 0; not part of the digest
    digest: str  # digest of the documents' ordinals, lengths and bytes
    options: ReadOptions  # how the files are read
    segments: list[FileSegment]  # segments of files that hold the documents, in order
    num_documents: int  # kept documents
    num_bytes: int  # bytes of their text
    selection: Selection | None = None  # which of the documents belong to the shard; None for all

    @property
    def whole(self) -> "Shard":
        """The shard with all its documents."""
        if self.selection is None:
            return self
        return self.model_copy(update={"digest": self.selection.of, "selection": None})

    def digest_with(self, files: Mapping[tuple[str, str], str]) -> str:
        """Return a digest of the documents and of the whole content of their files."""
        parts = [self.digest, *(files[self.source, segment.file] for segment in self.segments)]
        return blake2b("\n".join(parts).encode(), digest_size=32).hexdigest()


def read_shard(
    shard: Shard, roots: Mapping[str, str | Path], *, batch_bytes: int = BATCH_BYTES
) -> Iterator[DocumentBatch]:
    """Yield a shard's documents in order, and verify at the end that they have not changed since ingest.

    Progress is reported whenever the caller asks for the next batch, since it is done with the one before.
    """
    batches = _verified(shard, _root(shard, roots), batch_bytes)
    num_bytes = num_documents = 0
    ahead = read_ahead(batches, limit=_AHEAD * batch_bytes, size=lambda batch: len(batch.data) + 1)
    with closing(ahead):
        for batch in ahead:
            num_bytes, num_documents = num_bytes + len(batch.data), num_documents + len(batch)
            yield batch
            del batch  # before the next one is asked for
            report_progress(num_bytes, shard.num_bytes, "bytes", documents=num_documents)


def _verified(shard: Shard, root: str | Path, batch_bytes: int) -> Iterator[DocumentBatch]:
    hasher, selection = ShardHasher(), shard.selection
    for batch in batched(_documents(shard, root), batch_bytes):
        hasher.update(batch.ordinals, batch.offsets, batch.data)
        chosen = batch if selection is None else selection.select(batch)
        if len(chosen):
            yield chosen
    if hasher.hexdigest() != (shard.digest if selection is None else selection.of):
        names = ", ".join(segment.file for segment in shard.segments[:3]) + (
            "…" if len(shard.segments) > 3 else ""
        )
        msg = (
            f"shard {shard.source}/{shard.index} ({names}) changed since ingest; run again to ingest it again"
        )
        raise SourceError(msg)


def _root(shard: Shard, roots: Mapping[str, str | Path]) -> str | Path:
    if shard.source not in roots:
        msg = (
            f"no folder was given for source '{shard.source}'; known are {', '.join(sorted(roots)) or 'none'}"
        )
        raise SourceError(msg)
    return roots[shard.source]


def _documents(shard: Shard, root: str | Path) -> Iterator[DocumentBatch]:
    for segment in shard.segments:
        try:
            for batch in read_file_batches(
                below(root, segment.file), segment.format, shard.options, segment.span()
            ):
                if len(batch):
                    ordinals = batch.rows - segment.first_row + segment.first_ordinal
                    yield DocumentBatch(batch.data, batch.offsets, ordinals, batch.ids)
        except SourceError as error:
            msg = f"shard {shard.source}/{shard.index}: {error} (changed or moved since ingest: run again)"
            raise SourceError(msg) from error
        except MemoryError as error:
            raise out_of_memory(f"shard {shard.source}/{shard.index}: {segment.file}", error) from error


def batched(batches: Iterable[DocumentBatch], limit_bytes: int = BATCH_BYTES) -> Iterator[DocumentBatch]:
    """Join small batches and split large ones, so that each has at most `limit_bytes` (or one document).

    The first batches are smaller, and each is twice as large as the one before, so that the consumer can
    start early. A batch is yielded once it has at least half of its size.
    """
    held: list[DocumentBatch] = []
    held_bytes, enough = 0, min(_FIRST_BATCH_BYTES, limit_bytes)
    for batch in (part for whole in batches for part in _split(whole, limit_bytes)):
        if held and held_bytes + len(batch.data) > limit_bytes:
            yield _joined(held)
            held, held_bytes = [], 0
        held.append(batch)
        held_bytes += len(batch.data)
        if 2 * held_bytes >= enough:
            finished, held, held_bytes = [_joined(held)], [], 0
            enough = min(2 * enough, limit_bytes)
            del batch
            yield finished.pop()
    if held:
        yield _joined(held)


def _split(batch: DocumentBatch, limit_bytes: int) -> Iterator[DocumentBatch]:
    start = 0
    while start < len(batch):
        end = batch.offsets[start] + limit_bytes
        stop = max(start + 1, int(np.searchsorted(batch.offsets, end, side="right")) - 1)
        first, last = batch.offsets[start], batch.offsets[stop]
        yield DocumentBatch(
            data=batch.data[first:last],
            offsets=batch.offsets[start : stop + 1] - first,
            ordinals=batch.ordinals[start:stop],
            ids=None if batch.ids is None else batch.ids.slice(start, stop - start),
        )
        start = stop


def _joined(batches: list[DocumentBatch]) -> DocumentBatch:
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
    return DocumentBatch(
        data=np.concatenate([batch.data for batch in batches]),
        offsets=offsets_of(lengths),
        ordinals=np.concatenate([batch.ordinals for batch in batches]),
        ids=_joined_ids(batches),
    )


def _joined_ids(batches: list[DocumentBatch]) -> ArrowArray | None:
    if all(batch.ids is None for batch in batches):
        return None
    parts = [pa.nulls(len(b), pa.large_string()) if b.ids is None else b.ids for b in batches]
    return pa.concat_arrays([part.cast(pa.large_string()) for part in parts])
