"""TODO."""

import hashlib
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
from tokmill.tasks.kernels.documents import gather, hash_documents
from tokmill.tasks.remote.location import below

# A small file is held in memory while it is scanned.
MAX_GROUPED_BYTES = 32 << 20
# A compressed file is read from its start for each of its shards.
MAX_SHARDS_FROM_START = 16
# Text is rarely compressed to less than an eighth of its size.
_RATIO = 8
_USUAL_RATIO = 4
_LONG_BYTES = 64 << 10

# (corpora below this many bytes of text, get shards of about this many); see docs/adr/0007-shard-plan.md.
_STEPS = ((64 << 20, 8 << 20), (512 << 20, 32 << 20), (4 << 30, 64 << 20), (64 << 30, 256 << 20))
_LARGEST_BYTES = 1 << 30


def default_shard_bytes(text_bytes: int) -> int:
    """Return the default size of shards for a corpus of about `text_bytes`."""
    return next((size for below, size in _STEPS if text_bytes < below), _LARGEST_BYTES)


def estimated_text_bytes(size_bytes: int, *, compressed: bool) -> int:
    """Estimate the bytes of text in a file; a rough estimate is enough for the choice of shard sizes."""
    return _USUAL_RATIO * size_bytes if compressed else size_bytes


@dataclass(frozen=True)
class Limits:
    """Sizes of shards in bytes of text, each document counting one more.

    Attributes:
        average: target size. The minimum is a quarter of it (except for the last shard of a file), the
            maximum four times as much.
        max_shards: the most shards, the last of which takes all remaining documents; None for no limit.
    """

    average: int
    max_shards: int | None = None

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
        return min(self.average, MAX_GROUPED_BYTES)


def limits_of_file(limits: Limits, size_bytes: int, *, compressed: bool, row_group_bytes: int = 0) -> Limits:
    """Return a file's limits: those of the corpus, doubled while a shard needs far more reading."""
    reach = _RATIO * size_bytes if compressed else row_group_bytes
    average = limits.average
    while reach > MAX_SHARDS_FROM_START * average:
        average *= 2
    return Limits(average, MAX_SHARDS_FROM_START if compressed else None)


class Cutter:
    """Finds the ends of shards in a stream of documents, whatever its batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = 0
        self._num_cuts = 0

    def cuts(self, weights: Ints, marks: NDArray[np.bool_]) -> list[int]:
        """Return before which of the next n documents a shard ends; n for an end after the last one.

        Args:
            weights: int64[n], each document's bytes plus one.
            marks: bool[n], whether the document may end a shard.
        """
        ends = np.cumsum(weights)
        candidates = np.flatnonzero(marks)
        found: list[int] = []
        start, before = 0, -self._size
        while self._may_cut() and (cut := self._next(ends, candidates, start, before)) is not None:
            found.append(cut)
            self._num_cuts += 1
            start, before = cut, int(ends[cut - 1]) if cut else 0
        self._size = (int(ends[-1]) if len(ends) else 0) - before
        return found

    def _may_cut(self) -> bool:
        return self._limits.max_shards is None or self._num_cuts < self._limits.max_shards - 1

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
    """Return uint64[n], a hash of each document (`tasks.kernels.documents`).

    Documents over 64 KiB are hashed with BLAKE2b.
    """
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_documents(np.ascontiguousarray(data), np.ascontiguousarray(offsets), _LONG_BYTES, hashes)
    for index in np.flatnonzero(np.diff(offsets) > _LONG_BYTES).tolist():
        hashes[index] = _long_hash(data[offsets[index] : offsets[index + 1]])
    return hashes


def _long_hash(document: Bytes) -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(document).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def name_may_end(name: str, weight: int, limits: Limits) -> bool:
    """Whether a group of small files may end after this one, by its name and its size's power of two."""
    number = int.from_bytes(hashlib.blake2b(name.encode("utf-8"), digest_size=7).digest(), "big")
    return number / (1 << 56) < 0.75 * (1 << weight.bit_length()) / (limits.average - limits.minimum)


class ShardHasher:
    """Digest of a shard's documents: ordinals, lengths and bytes, whatever the files and batches."""

    def __init__(self) -> None:
        self._parts: list[Any] = [hashlib.blake2b(digest_size=32) for _ in range(3)]

    def update(self, ordinals: Ints, offsets: Ints, data: Bytes) -> None:
        """Add the next documents."""
        lengths = np.diff(offsets)
        for part, values in zip(
            self._parts, (ordinals.astype("<i8"), lengths.astype("<i8"), data), strict=True
        ):
            part.update(np.ascontiguousarray(values))

    def hexdigest(self) -> str:
        """Return the digest of the documents so far."""
        whole = b"".join(part.digest() for part in self._parts)
        return hashlib.blake2b(whole, digest_size=32, person=b"tokmill shard").hexdigest()


CorpusPart: TypeAlias = Literal["training", "validation"]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)


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
        held_out = is_held_out(draws, self.below, np.array(self.also, dtype=np.uint64))
        return _kept(batch, held_out if self.part == "validation" else ~held_out)


def draws_of(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return uint64[n], the documents' draws, from hashes of their content."""
    return _mixed(hashes ^ _mixed(np.array([seed], dtype=np.uint64)))


def is_held_out(draws: NDArray[np.uint64], below: int, also: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return bool[n]: whether documents with these draws are held out."""
    first = draws < np.uint64(below) if below < 1 << 64 else np.ones(len(draws), dtype=np.bool_)
    return first | np.isin(draws, also) if len(also) else first


def selected_digest(of: str, part: CorpusPart, held_out: Ints) -> str:
    """Return the digest of a part of a shard, from the shard's digest and the ordinals held out."""
    ordinals = np.ascontiguousarray(held_out, dtype="<i8").tobytes()
    content = b"\n".join([of.encode(), part.encode(), ordinals])
    return blake2b(content, digest_size=32, person=b"tokmill part").hexdigest()


def _kept(batch: DocumentBatch, keep: NDArray[np.bool_]) -> DocumentBatch:
    if keep.all():
        return batch
    lengths = np.diff(batch.offsets)[keep]
    offsets = offsets_of(lengths)
    data = np.empty(offsets[-1], dtype=np.uint8)
    gather(np.ascontiguousarray(batch.data), batch.offsets[:-1][keep], lengths, offsets[:-1], data)
    ids = None if batch.ids is None else batch.ids.filter(pa.array(keep))
    return DocumentBatch(data, offsets, batch.ordinals[keep], ids)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele et al. 2014); products wrap."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


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
