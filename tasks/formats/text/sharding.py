"""Divide a source into shards by its text, so that a change of the text only affects nearby shards.

Bounds are found as content-defined chunking finds them (Muthitacharoen et al. 2001): a shard ends after a
document whose hash qualifies, once it has a minimum size, and before a document that would exceed a maximum.
A document counts its bytes and one more. A large file is cut by itself; smaller ones are grouped in the order
of their names, and a group ends after a file whose hashed name qualifies. The result does not depend on
workers, paths, or the order in which files are read. A part of the corpus (held out or not) takes the
documents of a shard by a hash of their bytes and a seed, so that no text is on both sides.
"""

import hashlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.text.documents import Bytes, DocumentBatch, Ints, offsets_of
from tokmill.tasks.kernels.documents import gather, hash_documents

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
