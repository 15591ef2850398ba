"""Read the tokens and boundaries of many sequences at once from memory-mapped files.

The files are of the memmap or npy format: one row per sequence, at a position that follows from its number.
Shards are mapped on first use and stay mapped; the operating system's page cache holds the used parts.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import PackedShard, open_shard
from tokmill.tasks.kernels.documents import COPIES
from tokmill.tasks.loading.prefetch import ShardFetcher


class PackedRows:
    """Sequences of a packed artifact, by their numbers; may be shared by threads.

    With `verify` a shard's files are compared with the record when it is first read.
    """

    def __init__(self, path: Path, manifest: PackedManifest, *, verify: bool = True) -> None:
        if not {"memmap", "npy"} & set(manifest.formats):
            raise LoadingError(
                f"loading: {path} has the sequences as {', '.join(manifest.formats)} only, but the loader "
                "reads the memmap or npy format; pack with formats = ['memmap'], or export to it"
            )
        self.sequence_length = manifest.sequence_length
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype)
        self._path, self._verify = path, verify
        self._manifest = manifest
        self._addresses = np.zeros(len(manifest.shards), dtype=np.int64)  # 0 if not mapped yet
        self._firsts = manifest.firsts
        self._opened: dict[int, _Shard] = {}
        self._opening = threading.Lock()
        self._fetcher = ShardFetcher.of(path, manifest)

    def __reduce__(self) -> tuple[Callable[..., "PackedRows"], tuple[Path, PackedManifest]]:
        """A copy in another process maps the shards again."""
        return partial(PackedRows, verify=self._verify), (self._path, self._manifest)

    def reopened(self) -> "PackedRows":
        """Return the same rows, with no shard open."""
        return PackedRows(self._path, self._manifest, verify=self._verify)

    def tokens(self, sequences: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The tokens of `sequences`, int64 [n], as a new array of `dtype`, [n, sequence_length]."""
        shards, rows = self._places(sequences)
        out = np.empty((len(sequences), self.sequence_length), dtype=dtype)
        if not len(sequences):
            return out
        if shards[0] == shards[-1] and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) > 0).all():
            out[:] = self._shard(int(shards[0])).rows[rows[0] : rows[-1] + 1]
            return out
        for shard in np.unique(shards[self._addresses[shards] == 0]).tolist():
            self._addresses[shard] = self._shard(shard).rows.ctypes.data
        width, size = self.sequence_length, self.dtype.itemsize
        addresses = self._addresses[shards] + rows * (width * size)
        base = int(np.min(addresses))
        window = _window(base, (int(np.max(addresses)) - base) // size + width, self.dtype)
        flat = out.reshape(-1)
        if size == out.itemsize:  # the same bits, whether or not the type is signed
            window, flat = window.view(np.uint16), flat.view(np.uint16)
            width, size = len(flat) // len(rows), 2
        copy = COPIES[window.itemsize, flat.itemsize]
        copy(window, (addresses - base) // size, np.arange(len(rows)) * width, width, flat)
        return out

    def ends(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ends of all pieces of `sequences`, int64 [n], in their sequences, and each one's first piece.

        Returns int32 [p], and int64 [n + 1], indices in these.
        """
        shards, rows = self._places(sequences)
        ends = [
            self._shard(shard).ends(row) for shard, row in zip(shards.tolist(), rows.tolist(), strict=True)
        ]
        firsts = np.cumsum([0, *map(len, ends)], dtype=np.int64)
        return np.concatenate([np.empty(0, dtype=np.int32), *ends]), firsts

    @property
    def are_arriving(self) -> bool:
        """Whether there may be shards that are to be fetched when they are read."""
        return self._fetcher is not None and not self._fetcher.is_done

    def follow(self, sequences: Iterator[NDArray[np.int64]]) -> None:
        """Fetch shards ahead in the order of sequences that will be read; nothing if all are local."""
        if self._fetcher is not None:
            self._fetcher.follow(
                shard for part in sequences for shard in dict.fromkeys(self._places(part)[0].tolist())
            )

    def stop(self) -> None:
        """Fetch nothing more ahead."""
        if self._fetcher is not None:
            self._fetcher.stop()

    def _places(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shards = np.searchsorted(self._firsts, sequences, side="right") - 1
        return shards, sequences - self._firsts[shards]

    def _shard(self, position: int) -> "_Shard":
        """A shard by its position in the manifest; never unmapped, because its address is used."""
        shard = self._opened.get(position)
        if shard is not None:
            return shard
        with self._opening:
            if position not in self._opened:
                if self._fetcher is not None:
                    self._fetcher.need(position)  # which compares it with the record
                verify, index = self._verify and self._fetcher is None, self._manifest.shards[position].index
                shard = _Shard(open_shard(self._path, index, self._manifest, verify=verify))
                self._opened[position] = shard
            return self._opened[position]


class _Shard:
    """One shard's arrays without numpy's memmap class, whose every slice costs a microsecond."""

    def __init__(self, shard: PackedShard) -> None:
        self.rows: NDArray[Any] = np.asarray(shard.rows)
        self._flat: NDArray[np.int32] = np.asarray(shard.bounds)
        self._offsets: NDArray[np.int64] = np.asarray(shard.offsets)

    def ends(self, row: int) -> NDArray[np.int32]:
        """The ends of the pieces of a sequence: `cu_seqlens` without its first bound."""
        return self._flat[self._offsets[row] + 1 : self._offsets[row + 1]]


class _Span:
    """A range of memory as a buffer for numpy."""

    def __init__(self, address: int, length: int, dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (length,),
            "typestr": dtype.str,
        }


def _window(address: int, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """One read-only array over several memory maps and the gaps between them, which must not be read.

    It lets one call copy the rows of all shards; one call per shard of a shuffled batch would cost as much as
    the copying. The caller must keep the maps alive.
    """
    return np.asarray(_Span(address, length, dtype))
