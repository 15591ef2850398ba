"""The tokens and boundaries of many sequences at once, straight from the memory map.

What is read is the memmap or the npy format: one row a sequence, at a place that follows from its number.
Shards are mapped when they are first asked for, and stay so; the system's page cache holds what is used.
"""

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import LoadingError
from tasks.formats.packed_files import PackedManifest, ShardFiles
from tasks.formats.packed_shards import MemmapShard
from tasks.kernels.rows import copy_16_to_16, copy_16_to_32, copy_16_to_64, copy_32_to_64

# By the bytes of what is read and what is written.
_KERNELS: dict[tuple[int, int], Any] = {
    (2, 2): copy_16_to_16,
    (2, 4): copy_16_to_32,
    (2, 8): copy_16_to_64,
    (4, 8): copy_32_to_64,
}
_FEW_ROWS = 4  # with fewer rows a shard a call for each shard costs more than a slice for each row


class PackedRows:
    """Sequences of a packed artifact, by their numbers; may be shared by threads.

    Args:
        path: the artifact's directory.
        manifest: what its `packed.json` says.

    Raises:
        LoadingError: the artifact has neither of the two formats.
    """

    def __init__(self, path: Path, manifest: PackedManifest) -> None:
        if not {"memmap", "npy"} & set(manifest.formats):
            raise LoadingError(
                f"loading: {path} has the sequences as {', '.join(manifest.formats)} only, and what is "
                "loaded is the memmap format, or npy; pack with formats = ['memmap'], or export to it"
            )
        self.sequence_length = manifest.sequence_length
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype)
        self.mask_continued = manifest.mask_continued
        self._path = path
        self._manifest = manifest
        self._firsts = np.array([shard.first_sequence for shard in manifest.shards], dtype=np.int64)
        self._shard = lru_cache(maxsize=None)(self._open)

    def __reduce__(self) -> tuple[type["PackedRows"], tuple[Path, PackedManifest]]:
        """Another process maps the shards itself."""
        return PackedRows, (self._path, self._manifest)

    def tokens(self, sequences: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The tokens of `sequences`, int64 [n], as a new array of `dtype`, [n, sequence_length].

        Raises:
            StoreError: a file is missing or has another size than the manifest says.
        """
        shards, rows = self._places(sequences)
        out = np.empty((len(sequences), self.sequence_length), dtype=dtype)
        groups = _groups(shards)
        if len(groups) * _FEW_ROWS > len(sequences):
            found = [self._shard(shard).rows[row] for shard, row in _pairs(shards, rows)]
            np.concatenate([out[:0].reshape(-1), *found], out=out.reshape(-1), casting="same_kind")
            return out
        for group in groups:
            _copy(self._shard(int(shards[group[0]])).rows, rows[group], group, out)
        return out

    def ends(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Where the pieces of `sequences`, int64 [n], end within their sequences.

        Returns:
            int32 [p], the ends of all pieces, sequence after sequence; and int64 [n + 1], where each
            sequence's are among them.
        """
        found = [self._shard(shard).ends(row) for shard, row in _pairs(*self._places(sequences))]
        firsts = np.cumsum([0, *map(len, found)], dtype=np.int64)
        return np.concatenate([np.empty(0, dtype=np.int32), *found]), firsts

    def continued(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pieces of `sequences`, int64 [n], do not begin their document: bool [p]."""
        found = [self._shard(shard).continued(row) for shard, row in _pairs(*self._places(sequences))]
        return np.concatenate([np.empty(0, dtype=np.bool_), *found])

    def _places(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shards = np.searchsorted(self._firsts, sequences, side="right") - 1
        return shards, sequences - self._firsts[shards]

    def _open(self, position: int) -> "_Shard":
        files = ShardFiles(self._path, self._manifest.shards[position].index)
        named = MemmapShard.open if "memmap" in self._manifest.formats else MemmapShard.open_npy
        return _Shard(named(files, self._manifest))


class _Shard:
    """One shard's arrays without numpy's memmap class, whose every slice costs a microsecond."""

    def __init__(self, opened: MemmapShard) -> None:
        self.rows: NDArray[Any] = np.asarray(opened.rows)
        self._flat: NDArray[np.int32] = np.asarray(opened.flat)
        self._offsets: NDArray[np.int64] = np.asarray(opened.offsets)
        self._starts = opened.document_starts

    def ends(self, row: int) -> NDArray[np.int32]:
        """Where the pieces of a sequence end: `cu_seqlens` without its first bound."""
        return self._flat[self._offsets[row] + 1 : self._offsets[row + 1]]

    def continued(self, row: int) -> NDArray[np.bool_]:
        """Which of these pieces do not begin their document; none where the artifact does not know."""
        starts = self._starts(row)
        return np.zeros(len(self.ends(row)), dtype=np.bool_) if starts is None else starts > 0


def _groups(shards: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """The places of equal values, rising within each group."""
    order = np.argsort(shards, kind="stable")
    found = shards[order]
    cuts = np.flatnonzero(found[1:] != found[:-1]) + 1
    return [order[first:stop] for first, stop in pairwise([0, *cuts.tolist(), len(order)])]


def _copy(stored: NDArray[Any], rows: NDArray[np.int64], places: NDArray[np.intp], out: NDArray[Any]) -> None:
    """Copy rows of one shard to rows of `out`."""
    first, last, place = int(rows[0]), int(rows[-1]), int(places[0])
    if last - first == len(rows) - 1 == places[-1] - place and (rows[1:] > rows[:-1]).all():
        out[place : place + len(rows)] = stored[first : last + 1]
        return
    if stored.dtype.itemsize == out.dtype.itemsize:  # the same bits, also where the type is a signed one
        stored, out = stored.view(np.uint16), out.view(np.uint16)
    kernel = _KERNELS[stored.dtype.itemsize, out.dtype.itemsize]
    width = stored.shape[1]
    kernel(stored.reshape(-1), rows * width, places * width, width, out.reshape(-1))


def _pairs(shards: NDArray[np.int64], rows: NDArray[np.int64]) -> "zip[tuple[int, int]]":
    return zip(shards.tolist(), rows.tolist(), strict=True)
