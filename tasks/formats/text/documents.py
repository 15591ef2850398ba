"""Documents in memory: Arrow-style buffers, without one Python object per document.

A reader yields `FileBatch`es of one file: the texts, joined in `data`, with `offsets[i]:offsets[i + 1]` the
i-th of them; each document's row in the file; its position in the file, for formats that can be read from the
middle; and the bad documents in between. Stages get `DocumentBatch`es: the same buffers, with each document's
ordinal in its shard.

Laws: `offsets[0] == 0`, `offsets[-1] == len(data)`, rows and ordinals strictly increase, data is valid UTF-8.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.formats.text.quarantine import BadDocument

# Small enough that a batch stays in the processor's caches; the first batches are smaller, to start early.
BATCH_BYTES = 1 << 20
FIRST_BATCH_BYTES = 128 << 10

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
        """Return the documents one by one, as bytes (for tests and small samples, not for hot paths)."""
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
    """

    data: Bytes
    offsets: Ints
    rows: Ints
    bounds: Ints | None = None
    ids: ArrowArray | None = None
    bad: tuple[BadDocument, ...] = ()

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
        """Return the documents where `keep` is true, with their texts moved together."""
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
    """Return the documents one by one, as bytes."""
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
    """Return a batch of texts that are Python bytes."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return FileBatch(data=data, offsets=offsets_of(lengths), rows=rows, bounds=bounds, ids=ids, bad=bad)


def empty_file_batch(bad: Iterable[BadDocument] = ()) -> FileBatch:
    """Return a batch without documents, to carry bad ones."""
    none = np.empty(0, dtype=np.int64)
    return FileBatch(
        data=np.empty(0, dtype=np.uint8), offsets=np.zeros(1, dtype=np.int64), rows=none, bad=tuple(bad)
    )


def batched(batches: Iterable[DocumentBatch], limit_bytes: int = BATCH_BYTES) -> Iterator[DocumentBatch]:
    """Join small batches and split large ones, so that each has at most `limit_bytes` (or one document).

    The first batches are smaller, and each is twice as large as the one before, so that the consumer can
    start early. A batch is yielded once it has at least half of its size.
    """
    held: list[DocumentBatch] = []
    held_bytes, enough = 0, min(FIRST_BATCH_BYTES, limit_bytes)
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
