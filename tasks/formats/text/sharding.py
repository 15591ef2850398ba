"""Where shards begin and end: decided by the text, so that a change stays where it is made.

Shards are bounded units of work, about `shard_bytes` of text each. Their bounds are found as
content-defined chunking finds them (Muthitacharoen et al. 2001, "A Low-bandwidth Network File System"):
going through the documents, a shard ends after one whose own hash says so, once the shard has a minimum
size, and before one that would take it over a maximum. A document that is added, changed or taken away
therefore moves the bounds next to it and none farther off, since the same documents as before are found to
end shards again. A document counts its bytes and one more, so that empty ones end too.

A file of `shard_bytes` or more (or of 32 MiB) is cut by itself; smaller ones are grouped in the order of
their names, and a group ends after a file whose hashed name says so, with a probability that grows with its
size in powers of two. Nothing depends on workers, paths, or the order in which files are read.

How large shards are follows from the size of the corpus unless it is said (`default_shard_bytes`): every
shard costs some tenths of a second beside its work, whatever its size. The steps are few and far apart,
because a corpus that grows past one is cut anew.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.text.document_hashes import document_hashes, unit
from tokmill.tasks.formats.text.documents import Bytes, Ints

# A file that is to be grouped with others is held in memory while it is scanned.
MAX_GROUPED_BYTES = 32 << 20
# A compressed file is read from its start for each of its shards.
MAX_SHARDS_FROM_START = 16
# Text is rarely compressed to less than an eighth.
_RATIO = 8
# More usual is this.
_USUAL_RATIO = 4


# (a corpus of fewer bytes of text, has shards of about so many): see docs/adr/0007-shard-plan.md.
_STEPS = ((64 << 20, 8 << 20), (512 << 20, 32 << 20), (4 << 30, 64 << 20), (64 << 30, 256 << 20))
_LARGEST_BYTES = 1 << 30


def default_shard_bytes(text_bytes: int) -> int:
    """Return about how many bytes a shard should have of a corpus of `text_bytes`, estimated."""
    return next((size for below, size in _STEPS if text_bytes < below), _LARGEST_BYTES)


def estimated_text_bytes(size_bytes: int, *, compressed: bool) -> int:
    """Return about how many bytes of text a file holds; the steps are wide, so that it need not be exact."""
    return _USUAL_RATIO * size_bytes if compressed else size_bytes


@dataclass(frozen=True)
class Limits:
    """Sizes of shards in bytes of text, each document counting one more.

    Attributes:
        average: about which sizes lie; a quarter of it is the minimum (but for the last of a file), four
            times it the maximum.
        max_shards: the last of so many takes everything that is left; None for no limit.
    """

    average: int
    max_shards: int | None = None

    @property
    def minimum(self) -> int:
        """A shard does not end before it has this size, unless nothing is left."""
        return self.average // 4

    @property
    def maximum(self) -> int:
        """A shard has at most this size, unless a single document is larger."""
        return 4 * self.average

    @property
    def is_large(self) -> int:
        """From this size on a file is cut by itself."""
        return min(self.average, MAX_GROUPED_BYTES)


def limits_of_file(limits: Limits, size_bytes: int, *, compressed: bool, row_group_bytes: int = 0) -> Limits:
    """Return one file's limits, doubled while a shard would cost much more reading than its own text.

    Args:
        limits: those of the corpus.
        size_bytes: of the file as it lies there.
        compressed: whether its middle can be reached only through its start.
        row_group_bytes: the stretch that must be read to reach a document of a Parquet file, decompressed.
    """
    reach = _RATIO * size_bytes if compressed else row_group_bytes
    average = limits.average
    while reach > MAX_SHARDS_FROM_START * average:
        average *= 2
    return Limits(average, MAX_SHARDS_FROM_START if compressed else None)


class Cutter:
    """Finds the ends of shards in a stream of documents, however the stream is cut into batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = 0
        self._num_cuts = 0

    def cuts(self, weights: Ints, marks: NDArray[np.bool_]) -> list[int]:
        """Return before which of the next documents a shard ends; n for an end after the last one.

        Args:
            weights: int64[n], the documents' bytes and one more each.
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
        """The next end: after the first candidate of sufficient size, or before what would be too much."""
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
    """Return bool[n]: which documents may end a shard, by a hash of each and nothing around it."""
    share = (np.diff(offsets) + 1) / (limits.average - limits.minimum)
    return unit(document_hashes(data, offsets)) < share


def name_may_end(name: str, weight: int, limits: Limits) -> bool:
    """Whether a group of small files may end after this one, by its name and its size's power of two."""
    number = int.from_bytes(hashlib.blake2b(name.encode("utf-8"), digest_size=7).digest(), "big")
    return number / (1 << 56) < 0.75 * (1 << weight.bit_length()) / (limits.average - limits.minimum)


class ShardHasher:
    """Digest of a shard's documents: ordinals, lengths and bytes, whatever files and batches they come in."""

    def __init__(self) -> None:
        self._parts: list[Any] = [hashlib.blake2b(digest_size=32) for _ in range(3)]

    def update(self, ordinals: Ints, offsets: Ints, data: Bytes) -> None:
        """Take in the next documents."""
        lengths = np.diff(offsets)
        for part, values in zip(
            self._parts, (ordinals.astype("<i8"), lengths.astype("<i8"), data), strict=True
        ):
            part.update(np.ascontiguousarray(values))

    def hexdigest(self) -> str:
        """Return the digest of what was taken in so far."""
        whole = b"".join(part.digest() for part in self._parts)
        return hashlib.blake2b(whole, digest_size=32, person=b"tokmill shard").hexdigest()
