"""Shards of a packed artifact on object storage: fetched when they are first read, and a few ahead.

The model. The folder of such an artifact is in a cache (`tasks.store.remote`). A thread fetches shards in the
order in which an iteration reads them. A shard that is read before its turn is fetched by its reader.

Laws. Only the files that the loader reads are fetched, each at most once, and each is compared with the
record when it arrives. At most `AHEAD` shards have come or are on their way before someone reads them. An
error of the thread is raised where its shard is read, and reading that again fetches it again. Shards that
are local need no connection.

Prefetch: compute results ahead of the consumer in a few threads, and yield them in order.

Laws. At most `ahead` results are waiting or being computed. When the generator ends, is closed or is
garbage-collected, or when `work` raises, no further item is started, and each thread ends after its current
item. Nothing waits for the threads: a thread that runs the garbage collector may hold a lock that they need.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tokmill.tasks.formats.packed.manifest import PackedManifest, TakedownManifest
from tokmill.tasks.formats.packed.shard_format import formats_of
from tokmill.tasks.store import Store
from tokmill.tasks.store.layout import RECORD_FILE, url_of
from tokmill.tasks.store.record import read_record

AHEAD = 2
_HEADS = (PackedManifest.FILE, TakedownManifest.FILE)
T = TypeVar("T")
R = TypeVar("R")
THREAD_NAME = "tokmill-loading"


def fetch_descriptions(folder: Path) -> None:
    """Make those files of an artifact local that say what is in it.

    Raises:
        StoreError: they cannot be fetched, or differ from the record.
    """
    ArrivingFiles.of(folder)


class ArrivingFiles:
    """An artifact's files that come one by one, those that describe it at once.

    Args:
        folder: of the artifact, in a cache.
        url: of the store.

    Raises:
        StoreError: it has no readable record, or the files that describe it cannot be fetched.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = Path(str(folder))  # to look there pulls nothing
        self._store = Store.open(url)
        record = read_record(self._folder)
        self._ref = record.ref
        self._sizes = {entry.path: entry.size_bytes for entry in record.files}
        self._fetch(_HEADS)

    @classmethod
    def of(cls, folder: Path) -> "ArrivingFiles | None":
        """Return those of an artifact of a store with a remote; None for other folders."""
        url = url_of(folder)
        return cls(folder, url) if url and (folder / RECORD_FILE).is_file() else None

    def fetch(self, names: Collection[str]) -> None:
        """Make those files local that are not, and that the artifact has.

        Raises:
            StoreError: a file cannot be fetched, or differs from the record.
        """
        if not all(self._is_local(name) for name in names if name in self._sizes):
            self._fetch(names)

    def _fetch(self, names: Collection[str]) -> None:
        self._store.path(self._ref, [name for name in names if name in self._sizes])

    def _is_local(self, name: str) -> bool:
        path = self._folder / name
        return path.is_file() and path.stat().st_size == self._sizes[name]


class ArrivingShards:
    """The shards of a packed artifact; may be used by threads.

    Args:
        fetch: makes the shard at a position of the manifest local.
        num_shards: their number.
    """

    def __init__(self, fetch: Callable[[int], None], num_shards: int) -> None:
        self._fetch = fetch
        self._num_shards = num_shards
        self._needed: set[int] = set()
        self._coming: dict[int, Future[None]] = {}
        self._order: Iterator[int] = iter(())
        self._pool: ThreadPoolExecutor | None = None
        # The garbage collector may end an iteration, and so call `stop`, in a thread that holds the lock.
        self._lock = threading.RLock()

    @classmethod
    def of(cls, folder: Path, manifest: PackedManifest) -> "ArrivingShards | None":
        """Return the shards of an artifact of a store with a remote; None for other folders."""
        files = ArrivingFiles.of(folder)
        if files is None:
            return None
        return cls(lambda position: files.fetch(loaded_files(manifest, position)), len(manifest.shards))

    @property
    def are_all_needed(self) -> bool:
        """Whether every shard has been read."""
        return len(self._needed) == self._num_shards

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
            self._coming.clear()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def need(self, position: int) -> None:
        """Return when a shard is local.

        Raises:
            StoreError: it cannot be fetched, or differs from the record.
        """
        with self._lock:
            self._needed.add(position)
            coming = self._coming.pop(position, None)
        if coming is None or coming.cancel():
            self._fetch(position)
        else:
            coming.result()
        with self._lock:
            self._go_on()

    def _go_on(self) -> None:
        while self._pool is not None and len(self._coming) < AHEAD and self._are_more:
            position = next((each for each in self._order if self._is_new(each)), None)
            if position is None:
                return
            self._coming[position] = self._pool.submit(self._fetch, position)

    @property
    def _are_more(self) -> bool:
        return len(self._needed) + len(self._coming) < self._num_shards

    def _is_new(self, position: int) -> bool:
        return position not in self._needed and position not in self._coming


def loaded_files(manifest: PackedManifest, position: int) -> list[str]:
    """The names of a shard's files that the loader reads."""
    known, index = formats_of(manifest.formats)[0], manifest.shards[position].index
    return [path.as_posix() for path in known.paths(Path(), index)]


def made_ahead(
    work: Callable[[T], R], items: Iterable[T], *, num_threads: int, ahead: int
) -> Generator[R, None, None]:
    """Yield `work(item)` for every item, in order.

    Args:
        work: called in one of the threads.
        items: taken one by one, in the caller's thread.
        num_threads: 0 works in the caller's thread, on demand.
        ahead: the most results that wait or are being computed; ≥ 1.

    Raises:
        Exception: any exception of `items` or `work`, in the place of its result.
    """
    if num_threads == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix=THREAD_NAME)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
