"""Documents in memory: Arrow-style buffers, without one Python object per document.

A reader yields `FileBatch`es of one file: the joined texts (document i is `data[offsets[i]:offsets[i + 1]]`);
each document's row in the file; its position in the file, for formats that can be read from the middle; and
the bad documents in between. Stages get `DocumentBatch`es: the same buffers, with each document's ordinal in
its shard.

Laws: `offsets[0] == 0`, `offsets[-1] == len(data)`, rows and ordinals strictly increase, data is valid UTF-8.
`without_invalid_utf8` and `without_long` move the documents that break a rule to the bad ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.formats.text.quarantine import BadDocument, invalid_utf8, too_long

# Small enough that a batch stays in the processor's caches.
BATCH_BYTES = 1 << 20

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
# A pyarrow array; pyarrow has no type annotations.
ArrowArray: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class DocumentBatch:
    """Documents of one shard.

    Attributes:
        data: uint8[num_bytes], valid UTF-8.
        offsets: int64[n + 1], from 0 to num_bytes.
        ordinals: int64[n], each document's number in its shard, increasing; quarantined ones leave gaps.
        ids: string array of n, null where a document has none; None where the source names no id column.
    """

    data: Bytes
    offsets: Ints
    ordinals: Ints
    ids: ArrowArray | None = None

    def __len__(self) -> int:
        return len(self.ordinals)

    def documents(self) -> list[bytes]:
        """Return each document as bytes (for tests and small samples, not for hot paths)."""
        return documents_of(self.data, self.offsets)


@dataclass(frozen=True, eq=False)
class FileBatch:
    """Consecutive documents of one file, as yielded by its reader.

    Attributes:
        data: uint8[num_bytes].
        offsets: int64[n + 1], from 0 to num_bytes.
        rows: int64[n], each document's number in its file, from 0.
        bounds: int64[n, 2], the bytes of the (decompressed) file that hold the document and its separator;
            None if the format cannot be read from a byte position.
        ids: string array of n, or None.
        bad: the bad documents after the previous batch's rows, up to this one's end, in row order.
        sound_bytes: in the last batch of a damaged compressed file, how many bytes of its content are sound:
            documents that end after them may be wrong, although they were yielded.
    """

    data: Bytes
    offsets: Ints
    rows: Ints
    bounds: Ints | None = None
    ids: ArrowArray | None = None
    bad: tuple[BadDocument, ...] = ()
    sound_bytes: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ints:
        """Bytes per document, int64[n]."""
        return np.diff(self.offsets)

    def cut(self, start: int, stop: int) -> "FileBatch":
        """Return documents `start:stop` (without the bad ones), sharing the buffers."""
        first, last = self.offsets[start], self.offsets[stop]
        return FileBatch(
            data=self.data[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            rows=self.rows[start:stop],
            bounds=None if self.bounds is None else self.bounds[start:stop],
            ids=None if self.ids is None else self.ids.slice(start, stop - start),
        )

    def select(self, keep: NDArray[np.bool_]) -> "FileBatch":
        """Return the documents where `keep` is true, with their texts copied into a new buffer."""
        lengths = self.lengths
        return replace(
            self,
            data=self.data[np.repeat(keep, lengths)],
            offsets=offsets_of(lengths[keep]),
            rows=self.rows[keep],
            bounds=None if self.bounds is None else self.bounds[keep],
            ids=None if self.ids is None else self.ids.filter(pa.array(keep)),
        )


def offsets_of(lengths: Ints) -> Ints:
    """Return int64[n + 1] offsets of n consecutive texts."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def documents_of(data: Bytes, offsets: Ints) -> list[bytes]:
    """Return each document as bytes."""
    raw = data.tobytes()
    bounds = offsets.tolist()
    return [raw[start:stop] for start, stop in pairwise(bounds)]


def file_batch(
    texts: Sequence[bytes],
    rows: Ints,
    *,
    bounds: Ints | None = None,
    ids: ArrowArray | None = None,
    bad: tuple[BadDocument, ...] = (),
) -> FileBatch:
    """Return a batch of texts given as Python bytes."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return FileBatch(data=data, offsets=offsets_of(lengths), rows=rows, bounds=bounds, ids=ids, bad=bad)


def empty_file_batch(bad: Iterable[BadDocument] = ()) -> FileBatch:
    """Return a batch that holds bad documents only."""
    none = np.empty(0, dtype=np.int64)
    return FileBatch(
        data=np.empty(0, dtype=np.uint8), offsets=np.zeros(1, dtype=np.int64), rows=none, bad=tuple(bad)
    )


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
    if is_utf8(batch.data, batch.offsets):
        return batch
    broken = _invalid(batch.data, batch.offsets, 0, len(batch))
    keep = np.ones(len(batch), dtype=np.bool_)
    keep[broken] = False
    bad = sorted((*batch.bad, *(_describe(batch, index) for index in broken)), key=lambda one: one.row)
    return replace(batch.select(keep), bad=tuple(bad))


def without_long(batch: FileBatch, limit: int) -> FileBatch:
    """Return the batch with the documents of more than `limit` bytes moved to its bad ones."""
    if len(batch.data) <= limit:
        return batch
    keep = batch.lengths <= limit
    if keep.all():
        return batch
    found = [
        too_long(
            int(batch.rows[index]), batch.data[batch.offsets[index] :][: limit + 1][:1000].tobytes(), limit
        )
        for index in np.flatnonzero(~keep).tolist()
    ]
    bad = sorted((*batch.bad, *found), key=lambda one: one.row)
    return replace(batch.select(keep), bad=tuple(bad))


def _invalid(data: Bytes, offsets: Ints, start: int, stop: int) -> list[int]:
    """Find the invalid documents of `start:stop` by bisection; cheap if they are few."""
    if start == stop or is_utf8(data, offsets[start : stop + 1]):
        return []
    if stop - start == 1:
        return [start]
    middle = (start + stop) // 2
    return _invalid(data, offsets, start, middle) + _invalid(data, offsets, middle, stop)


def _describe(batch: FileBatch, index: int) -> BadDocument:
    document = batch.data[batch.offsets[index] : batch.offsets[index + 1]].tobytes()
    return invalid_utf8(int(batch.rows[index]), document)
