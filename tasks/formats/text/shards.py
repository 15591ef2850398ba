"""Shards: bounded parts of a source's text, identified by content, and read by each stage that needs them.

Bounds are found as content-defined chunking finds them (Muthitacharoen et al. 2001), so that a change of the
text affects nearby shards alone: a shard ends after a document whose hash qualifies, once it has a minimum
size, and before a document that would exceed a maximum. A document counts its bytes and one more. A large
file is cut by itself; smaller ones are grouped in the order of their names, and a group ends after a file
whose hashed name qualifies. Nothing depends on workers, paths, or the order in which files are read.

Reading a shard to the end verifies that its documents are those that were ingested, so a stage must read to
the end before it publishes anything. A part of the corpus (held out or not) takes the documents of a shard by
a hash of their bytes and a seed, so that no text is on both sides.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.pipelining import read_ahead
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.documents import (
    BATCH_BYTES,
    ArrowArray,
    Bytes,
    DocumentBatch,
    Ints,
    offsets_of,
)
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import Format, ReadOptions
from tokmill.tasks.kernels.documents import hash_documents, mixed
from tokmill.tasks.remote.location import below

# A small file is held in memory while it is scanned.
_MAX_GROUPED_BYTES = 32 << 20
# A compressed file is read from its start for each of its shards.
MAX_SHARDS_FROM_START = 16
# Text is rarely compressed to less than an eighth of its size.
_RATIO = 8
_USUAL_RATIO = 4
_LONG_BYTES = 64 << 10
# (corpora below this many bytes of text, get shards of about this many); see docs/adr/0007-shard-plan.md.
_STEPS = ((64 << 20, 8 << 20), (512 << 20, 32 << 20), (4 << 30, 64 << 20), (64 << 30, 256 << 20))
_LARGEST_BYTES = 1 << 30
# With so many batches in memory, including the consumer's, the reading thread waits.
_AHEAD = 3
# Smaller than the later batches, so that the consumer starts early.
_FIRST_BATCH_BYTES = 128 << 10

CorpusPart: TypeAlias = Literal["training", "validation"]


def default_shard_bytes(text_bytes: int) -> int:
    """Return the default size of shards for a corpus of about `text_bytes`."""
    return next((size for limit, size in _STEPS if text_bytes < limit), _LARGEST_BYTES)


def estimated_text_bytes(size_bytes: int, *, compressed: bool) -> int:
    """Estimate the bytes of text in a file; a rough estimate is enough for the choice of shard sizes."""
    return _USUAL_RATIO * size_bytes if compressed else size_bytes


@dataclass(frozen=True)
class Limits:
    """Sizes of shards in bytes of text, each document counting one more."""

    average: int  # target size
    max_shards: int | None = None  # the last of which takes all remaining documents; None for no limit

    @property
    def minimum(self) -> int:
        """A shard does not end before it has this size, unless the text ends."""
        return self.average // 4

    @property
    def maximum(self) -> int:
        """A shard has at most this size, unless a single document is larger."""
        return 4 * self.average

    @property
    def own_shards_bytes(self) -> int:
        """Files of at least this size have shards of their own."""
        return min(self.average, _MAX_GROUPED_BYTES)

    def of_file(self, size_bytes: int, *, compressed: bool, row_group_bytes: int = 0) -> "Limits":
        """Return a file's limits: these, doubled while a shard needs far more reading."""
        reach = _RATIO * size_bytes if compressed else row_group_bytes
        average = self.average
        while reach > MAX_SHARDS_FROM_START * average:
            average *= 2
        return Limits(average, MAX_SHARDS_FROM_START if compressed else None)


class Cutter:
    """Finds the ends of shards in a stream of documents, whatever its batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = 0
        self._remaining = limits.max_shards

    def cuts(self, weights: Ints, marks: NDArray[np.bool_]) -> list[int]:
        """Return before which of the next n documents a shard ends; n for an end after the last one.

        Args:
            weights: int64[n], each document's bytes plus one.
            marks: bool[n], whether the document may end a shard.
        """
        ends, candidates = np.cumsum(weights), np.flatnonzero(marks)
        found: list[int] = []
        start, before = 0, -self._size
        while self._remaining != 1 and (cut := self._next(ends, candidates, start, before)) is not None:
            found.append(cut)
            self._remaining = self._remaining and self._remaining - 1
            start, before = cut, int(ends[cut - 1]) if cut else 0
        self._size = (int(ends[-1]) if len(ends) else 0) - before
        return found

    def _next(self, ends: Ints, candidates: Ints, start: int, before: int) -> int | None:
        """Return the next end: after the first candidate of minimum size, or before exceeding the maximum."""
        full = start + int(np.searchsorted(ends[start:], before + self._limits.minimum))
        over = start + int(np.searchsorted(ends[start:], before + self._limits.maximum, side="right"))
        at = int(np.searchsorted(candidates, full))
        if at < len(candidates) and candidates[at] < over:
            return int(candidates[at]) + 1
        if over >= len(ends):
            return None
        starts_shard = over == start and (before == (int(ends[start - 1]) if start else 0))
        return over + 1 if starts_shard else over


def may_end(data: Bytes, offsets: Ints, limits: Limits) -> NDArray[np.bool_]:
    """Return bool[n]: whether each document may end a shard, by its own hash."""
    share = (np.diff(offsets) + 1) / (limits.average - limits.minimum)
    return ((document_hashes(data, offsets) >> np.uint64(11)).astype(np.float64) * 2.0**-53) < share


def document_hashes(data: Bytes, offsets: Ints) -> NDArray[np.uint64]:
    """Return uint64[n], a hash of each document; those over 64 KiB are hashed with BLAKE2b."""
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_documents(np.ascontiguousarray(data), np.ascontiguousarray(offsets), _LONG_BYTES, hashes)
    for index in np.flatnonzero(np.diff(offsets) > _LONG_BYTES).tolist():
        document = np.ascontiguousarray(data[offsets[index] : offsets[index + 1]])
        hashes[index] = int.from_bytes(blake2b(document.data, digest_size=8).digest(), "little")
    return hashes


def name_may_end(name: str, weight: int, limits: Limits) -> bool:
    """Whether a group of small files may end after this one, by its name and its size's power of two."""
    number = int.from_bytes(blake2b(name.encode("utf-8"), digest_size=7).digest(), "big")
    return number / (1 << 56) < 0.75 * (1 << weight.bit_length()) / (limits.average - limits.minimum)


class ShardHasher:
    """Digest of a shard's documents: ordinals, lengths and bytes, whatever the files and batches."""

    def __init__(self) -> None:
        self._parts: list[Any] = [blake2b(digest_size=32) for _ in range(3)]

    def update(self, ordinals: Ints, offsets: Ints, data: Bytes) -> None:
        """Add the next documents."""
        values = (ordinals.astype("<i8"), np.diff(offsets).astype("<i8"), data)
        for part, each in zip(self._parts, values, strict=True):
            part.update(np.ascontiguousarray(each))

    def hexdigest(self) -> str:
        """Return the digest of the documents so far."""
        whole = b"".join(part.digest() for part in self._parts)
        return blake2b(whole, digest_size=32, person=b"tokmill shard").hexdigest()


class Selection(BaseModel):
    """The rule by which documents of a shard are selected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str  # digest of the shard with all its documents
    part: CorpusPart  # the part that is selected
    seed: int  # seed of the draws
    below: int  # documents with smaller draws are held out; at most 2**64
    also: tuple[int, ...] = ()  # draws of further documents that are held out, ascending

    def select(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the documents of a batch that belong to the part, in their order."""
        draws = draws_of(document_hashes(batch.data, batch.offsets), self.seed)
        keep = is_held_out(draws, self.below, np.array(self.also, dtype=np.uint64))
        keep = keep if self.part == "validation" else ~keep
        return batch if keep.all() else batch.select(keep)


def draws_of(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return uint64[n], the documents' draws, from hashes of their content."""
    return mixed(hashes ^ mixed(np.array([seed], dtype=np.uint64)))


def is_held_out(draws: NDArray[np.uint64], below: int, also: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return bool[n]: whether documents with these draws are held out."""
    first = draws < np.uint64(below) if below < 1 << 64 else np.ones(len(draws), dtype=np.bool_)
    return first | np.isin(draws, also) if len(also) else first


def selected_digest(of: str, part: CorpusPart, held_out: Ints) -> str:
    """Return the digest of a part of a shard, from the shard's digest and the ordinals held out."""
    ordinals = np.ascontiguousarray(held_out, dtype="<i8").tobytes()
    content = b"\n".join([of.encode(), part.encode(), ordinals])
    return blake2b(content, digest_size=32, person=b"tokmill part").hexdigest()


class FileSegment(BaseModel):
    """Consecutive rows of one file that belong to a shard."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str  # path relative to the source's root
    format: Format  # how the file is read
    first_ordinal: int  # ordinal in the shard of the first row
    first_row: int  # that row's number in the file, from 0
    num_rows: int  # rows, including bad ones
    start: int | None = None  # byte of the decompressed content; None where the format has no such positions
    end: int | None = None  # byte where the rows end, or None
    compression: str | None = None  # the file's, or None; in the corpus's table of files, not of segments

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

    A thread reads ahead. Progress is reported whenever the caller asks for the next batch, since it is done
    with the one before.
    """
    if shard.source not in roots:
        known = ", ".join(sorted(roots)) or "none"
        raise SourceError(f"no folder was given for source '{shard.source}'; known are {known}")
    batches = _verified(shard, roots[shard.source], batch_bytes)
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
    if hasher.hexdigest() != shard.whole.digest:
        names = [segment.file for segment in shard.segments[:4]]
        shown = ", ".join(names if len(names) < 4 else [*names[:3], "…"])
        raise SourceError(
            f"shard {shard.source}/{shard.index} ({shown}) changed since ingest; run again to ingest it again"
        )


def _documents(shard: Shard, root: str | Path) -> Iterator[DocumentBatch]:
    for segment in shard.segments:
        try:
            path, first = below(root, segment.file), segment.first_ordinal - segment.first_row
            for batch in read_file_batches(path, segment.format, shard.options, segment.span()):
                if len(batch):
                    yield DocumentBatch(batch.data, batch.offsets, batch.rows + first, batch.ids)
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
        yield batch.cut(start, stop)
        start = stop


def _joined(batches: list[DocumentBatch]) -> DocumentBatch:
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
    data, ordinals = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("data", "ordinals")
    )
    return DocumentBatch(data, offsets_of(lengths), ordinals, _joined_ids(batches))


def _joined_ids(batches: list[DocumentBatch]) -> ArrowArray | None:
    if all(batch.ids is None for batch in batches):
        return None
    parts = [pa.nulls(len(b), pa.large_string()) if b.ids is None else b.ids for b in batches]
    return pa.concat_arrays([part.cast(pa.large_string()) for part in parts])
