"""Documents in memory: Arrow-style buffers, without one Python object per document.

A reader yields `FileBatch`es of one file: the joined texts (document i is `data[offsets[i]:offsets[i + 1]]`);
each document's row in the file; its position in the file, for formats that can be read from the middle; and
the bad documents in between. Stages get `DocumentBatch`es: the same buffers, with each document's ordinal in
its shard.

Laws: `offsets[0] == 0`, `offsets[-1] == len(data)`, rows and ordinals strictly increase, data is valid UTF-8.
`without_invalid_utf8` and `without_long` move the documents that break a rule to the bad ones.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.formats.text.quarantine import BadDocument, invalid_utf8, too_long
from tokmill.tasks.kernels.documents import gather

# Small enough that a batch stays in the processor's caches.
BATCH_BYTES = 1 << 20

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
# A pyarrow array; pyarrow has no type annotations.
ArrowArray: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class Texts:
    """Consecutive texts, and what is known of each: the fields that a subclass names in `EACH`."""

    EACH: ClassVar[tuple[str, ...]] = ()

    data: Bytes  # uint8[num_bytes]
    offsets: Ints  # int64[n + 1], from 0 to num_bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """Bytes per document, int64[n]."""
        return np.diff(self.offsets)

    def documents(self) -> list[bytes]:
        """Return each document as bytes (for tests and small samples, not for hot paths)."""
        raw = self.data.tobytes()
        return [raw[start:stop] for start, stop in pairwise(self.offsets.tolist())]

    def cut(self, start: int, stop: int) -> Self:
        """Return documents `start:stop`, sharing the buffers."""
        first, last = self.offsets[start], self.offsets[stop]
        offsets = self.offsets[start : stop + 1] - first
        return replace(
            self, data=self.data[first:last], offsets=offsets, **self._each(lambda one: one[start:stop])
        )

    def select(self, keep: NDArray[np.bool_]) -> Self:
        """Return the documents where `keep` is true, with their texts copied into a new buffer."""
        lengths = self.lengths[keep]
        offsets = offsets_of(lengths)
        data = np.empty(offsets[-1], dtype=np.uint8)
        gather(np.ascontiguousarray(self.data), self.offsets[:-1][keep], lengths, offsets[:-1], data)
        chosen = self._each(
            lambda one: one[keep] if isinstance(one, np.ndarray) else one.filter(pa.array(keep))
        )
        return replace(self, data=data, offsets=offsets, **chosen)

    def _each(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.EACH}
        return {name: None if value is None else change(value) for name, value in values.items()}


@dataclass(frozen=True, eq=False)
class DocumentBatch(Texts):
    """Documents of one shard."""

    EACH = ("ordinals", "ids")

    ordinals: Ints  # int64[n], each document's number in its shard, increasing; quarantined ones leave gaps
    ids: ArrowArray | None = None  # string array of n, with nulls; None where the source names no id column


@dataclass(frozen=True, eq=False)
class FileBatch(Texts):
    """Consecutive documents of one file, as yielded by its reader."""

    EACH = ("rows", "bounds", "ids")

    rows: Ints  # int64[n], each document's number in its file, from 0
    # int64[n, 2], the bytes of the (decompressed) file that hold the document and its separator; None if the
    # format cannot be read from a byte position
    bounds: Ints | None = None
    ids: ArrowArray | None = None  # string array of n, or None
    bad: tuple[BadDocument, ...] = ()  # those after the previous batch's rows, up to this one's end, in order
    # In the last batch of a damaged compressed file, how many bytes of its content are sound: documents that
    # end after them may be wrong, although they were yielded.
    sound_bytes: int | None = None


def offsets_of(lengths: Ints) -> Ints:
    """Return int64[n + 1] offsets of n consecutive texts."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def file_batch(texts: Sequence[bytes], rows: Ints, **more: Any) -> FileBatch:
    """Return a batch of texts given as Python bytes, and what `more` it has."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return FileBatch(np.frombuffer(b"".join(texts), dtype=np.uint8), offsets_of(lengths), rows, **more)


def empty_file_batch(bad: Iterable[BadDocument] = ()) -> FileBatch:
    """Return a batch that holds bad documents only."""
    return file_batch([], np.empty(0, dtype=np.int64), bad=tuple(bad))


def is_utf8(data: Bytes, offsets: Ints) -> bool:
    """Whether every document by itself is valid UTF-8 (no surrogates, no overlong forms)."""
    buffers = (pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data)))
    try:
        pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def without_invalid_utf8(batch: FileBatch) -> FileBatch:
    """Return the batch with the documents that are not UTF-8 moved to its bad ones."""
    invalid = _invalid(batch, 0, len(batch))
    return _without(batch, invalid, lambda row, document: invalid_utf8(row, document.tobytes()))


def without_long(batch: FileBatch, limit: int) -> FileBatch:
    """Return the batch with the documents of more than `limit` bytes moved to its bad ones."""
    long = np.flatnonzero(batch.lengths > limit).tolist() if len(batch.data) > limit else []
    return _without(batch, long, lambda row, document: too_long(row, document.data, limit))


def _without(batch: FileBatch, places: list[int], describe: Callable[[int, Bytes], BadDocument]) -> FileBatch:
    if not places:
        return batch
    documents = (batch.data[batch.offsets[place] : batch.offsets[place + 1]] for place in places)
    found = map(describe, batch.rows[places].tolist(), documents)
    bad = sorted((*batch.bad, *found), key=lambda one: one.row)
    keep = np.ones(len(batch), dtype=np.bool_)
    keep[places] = False
    return replace(batch.select(keep), bad=tuple(bad))


def _invalid(batch: FileBatch, start: int, stop: int) -> list[int]:
    """Find the invalid documents of `start:stop` by bisection; cheap if they are few."""
    if start == stop or is_utf8(batch.data, batch.offsets[start : stop + 1]):
        return []
    middle = (start + stop) // 2
    return [start] if stop - start == 1 else _invalid(batch, start, middle) + _invalid(batch, middle, stop)
