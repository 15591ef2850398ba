"""Read the tokens and boundaries of many sequences at once from memory-mapped files.

Shards are mapped on first use and stay mapped. Those of a store with a remote are fetched when they are read,
a few ahead. Nothing waits for threads, since one that collects garbage may hold a lock that they need.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.manifest import PackedManifest, TakedownManifest
from tokmill.tasks.formats.packed.shard_format import formats_of, open_shard
from tokmill.tasks.kernels.documents import COPIES
from tokmill.tasks.store import Store
from tokmill.tasks.store.layout import RECORD_FILE, url_of
from tokmill.tasks.store.record import read_record

AHEAD = 2
_PAGE = 4096  # bytes
_QUICK = 0.001  # seconds; what takes longer waits for a disk or a network
THREAD_NAME = "tokmill-loading"
T = TypeVar("T")
Arrays: TypeAlias = tuple[NDArray[Any], ...]
"""A shard's rows, their bounds, and the offsets of these."""


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
        # of each shard's rows, bounds and offsets of bounds; 0 if not mapped yet
        self._addresses = np.zeros((3, len(manifest.shards)), dtype=np.int64)
        self._firsts = manifest.firsts
        self._opened: dict[int, Arrays] = {}
        self._opening = threading.Lock()
        self._fetcher = ShardFetcher.of(path, manifest)

    def __reduce__(self) -> tuple[Callable[..., "PackedRows"], tuple[Path, PackedManifest]]:
        """A copy in another process maps the shards again."""
        return partial(PackedRows, verify=self._verify), (self._path, self._manifest)

    def reopened(self) -> "PackedRows":
        """Return the same rows, with no shard open."""
        return PackedRows(self._path, self._manifest, verify=self._verify)

    def read_tokens(self, sequences: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the tokens of `sequences`, int64 [n], to `out`, [n, sequence_length] of the wanted dtype."""
        shards, rows = self._places(sequences)
        if not len(sequences):
            return
        if shards[0] == shards[-1] and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) > 0).all():
            out[:] = self._shard(int(shards[0]))[0][rows[0] : rows[-1] + 1]
            return
        width, size = self.sequence_length, self.dtype.itemsize
        addresses = self._mapped(shards)[0] + rows * (width * size)
        window, places = _window(addresses, width, self.dtype)
        flat = out.reshape(-1)
        if size == out.itemsize:  # the same bits, whether or not the type is signed
            window, flat = window.view(np.uint16), flat.view(np.uint16)
            width, places = width * size // 2, places * (size // 2)
        COPIES[window.itemsize, flat.itemsize](window, places, np.arange(len(rows)) * width, width, flat)

    def touch(self, sequences: NDArray[np.int64]) -> None:
        """Wait until the tokens of `sequences`, int64 [n], are in the memory of the machine."""
        shards, rows = self._places(sequences)
        row_bytes = self.sequence_length * self.dtype.itemsize
        starts = self._mapped(shards)[0] + rows * row_bytes
        addresses = np.add.outer(starts, np.arange(0, row_bytes, _PAGE)).reshape(-1)
        window, places = _window(addresses, 1, np.dtype(np.uint16))
        COPIES[2, 2](window, places, np.zeros_like(places), 1, np.empty(1, dtype=np.uint16))

    def ends(self, sequences: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ends of all pieces of `sequences`, int64 [n], in their sequences, and each one's first piece.

        Returns int32 [p], and int64 [n + 1], indices in these.
        """
        shards, rows = self._places(sequences)
        _, bounds, offsets = self._mapped(shards)
        begins, stops = (_at(offsets + 8 * (rows + k), np.dtype(np.int64)) for k in (0, 1))
        firsts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(stops - begins - 1, out=firsts[1:])  # a sequence's first bound is 0, which ends nothing
        addresses = np.repeat(bounds + 4 * (begins + 1 - firsts[:-1]), np.diff(firsts))  # of int32
        return _at(addresses + 4 * np.arange(firsts[-1]), np.dtype(np.int32)), firsts

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

    def _mapped(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """The addresses of the arrays of `shards`, int64 [n], as int64 [3, n]."""
        for shard in np.unique(shards[self._addresses[0, shards] == 0]).tolist():
            self._addresses[:, shard] = [array.ctypes.data for array in self._shard(shard)]
        return self._addresses[:, shards]

    def _shard(self, position: int) -> Arrays:
        """A shard by its position in the manifest; never unmapped, because its addresses are used."""
        shard = self._opened.get(position)
        if shard is not None:
            return shard
        with self._opening:
            if position not in self._opened:
                if self._fetcher is not None:
                    self._fetcher.need(position)  # which compares it with the record
                verify, index = self._verify and self._fetcher is None, self._manifest.shards[position].index
                opened = open_shard(self._path, index, self._manifest, verify=verify)
                self._opened[position] = tuple(map(np.asarray, (opened.rows, opened.bounds, opened.offsets)))
            return self._opened[position]


class _Span:
    def __init__(self, address: int, length: int, dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (length,),
            "typestr": dtype.str,
        }


def _window(
    addresses: NDArray[np.int64], length: int, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """One read-only array over several memory maps and the gaps between them, which must not be read.

    It lets one call copy the rows of all shards; one call per shard of a shuffled batch would cost as much as
    the copying. The caller must keep the maps alive. It ends `length` after the last address; where in it
    the addresses are comes with it.
    """
    places = (addresses - np.min(addresses)) // dtype.itemsize
    return np.asarray(_Span(int(np.min(addresses)), int(np.max(places)) + length, dtype)), places


def _at(addresses: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers at these addresses."""
    window, places = _window(addresses, 1, dtype) if len(addresses) else (np.empty(0, dtype), addresses)
    return window[places]


def fetch_descriptions(folder: Path) -> None:
    """Make those files of an artifact local that say what is in it."""
    if fetch := _fetcher(folder):
        fetch((PackedManifest.FILE, TakedownManifest.FILE))


def _fetcher(folder: Path) -> Callable[[Collection[str]], None] | None:
    """What makes files of an artifact local, compared with its record; None if its store has no remote."""
    url = url_of(folder)
    if not url or not (folder / RECORD_FILE).is_file():
        return None
    local, store = Path(str(folder)), Store.open(url)  # to look at the plain path pulls nothing
    record = read_record(local)
    sizes = {entry.path: entry.size_bytes for entry in record.files}

    def fetch(names: Collection[str]) -> None:
        wanted = {name: local / name for name in names if name in sizes}
        if not all(path.is_file() and path.stat().st_size == sizes[name] for name, path in wanted.items()):
            store.path(record.ref, list(wanted))

    return fetch


class ShardFetcher:
    """Fetches shards when they are read, and at most `AHEAD` before; may be used by threads.

    An error of the thread is raised where its shard is read, and reading that again fetches it again.
    """

    def __init__(self, fetch: Callable[[int], None], num_shards: int) -> None:
        self._fetch = fetch  # makes the shard at a position of the manifest local
        self._missing = set(range(num_shards))  # neither read nor on their way
        self._coming: dict[int, Future[None]] = {}
        self._order: Iterator[int] = iter(())
        self._pool: ThreadPoolExecutor | None = None
        # The garbage collector may end an iteration, and so call `stop`, in a thread that holds the lock.
        self._lock = threading.RLock()

    @classmethod
    def of(cls, folder: Path, manifest: PackedManifest) -> "ShardFetcher | None":
        """Return that of an artifact of a store with a remote, for the files that the loader reads."""
        fetch = _fetcher(folder)
        if fetch is None:
            return None
        known = formats_of(manifest.formats)[0]
        names = [[path.name for path in known.paths(Path(), shard.index)] for shard in manifest.shards]
        return cls(lambda position: fetch(names[position]), len(names))

    @property
    def is_done(self) -> bool:
        """Whether every shard has been read."""
        return not self._missing and not self._coming

    def follow(self, order: Iterator[int]) -> None:
        """Fetch ahead in this order of positions, which may repeat, instead of an earlier one."""
        self.stop()
        with self._lock:
            self._order = order
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"{THREAD_NAME}-shards")
            self._go_on()

    def stop(self) -> None:
        """Fetch nothing more ahead; the thread ends after its shard."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._missing |= self._coming.keys()
            self._coming.clear()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def need(self, position: int) -> None:
        """Return when a shard is local; raises if it cannot be fetched, or differs from the record."""
        with self._lock:
            self._missing.discard(position)
            coming = self._coming.pop(position, None)
        if coming is None or coming.cancel():
            self._fetch(position)
        else:
            coming.result()
        with self._lock:
            self._go_on()

    def _go_on(self) -> None:
        while self._pool is not None and self._missing and len(self._coming) < AHEAD:
            position = next((each for each in self._order if each in self._missing), None)
            if position is None:
                return
            self._missing.remove(position)
            self._coming[position] = self._pool.submit(self._fetch, position)


def read_ahead(
    read: Callable[[list[T]], None], items: Iterable[T], *, num_threads: int, ahead: int, most: int
) -> Generator[T, None, None]:
    """Yield the items in order, while threads read what those need that come next.

    Threads get a list of items at a time, at most `ahead` lists. As long as reading waits for nothing, lists
    grow up to `most` items, so that handing them over costs next to nothing. Items are taken in the caller's
    thread, which waits for no list that is not begun. What fails in a thread fails again for the caller.
    """
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix=THREAD_NAME)
    waiting: deque[tuple[list[T], Future[float]]] = deque()
    items, size = iter(items), 1
    try:
        while (listed := [*islice(items, size)]) or waiting:
            if listed:
                waiting.append((listed, pool.submit(_seconds, read, listed)))
            if not listed or len(waiting) >= ahead:
                due, future = waiting.popleft()
                is_quick = future.cancel() or (future.exception() is None and future.result() < _QUICK)
                size = min(2 * size, most) if is_quick else 1
                yield from due
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _seconds(read: Callable[[list[T]], None], items: list[T]) -> float:
    begin = perf_counter()
    read(items)
    return perf_counter() - begin
