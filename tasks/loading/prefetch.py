"""Prefetch: results that a few threads compute ahead of the consumer, and shards on object storage.

Nothing waits for the threads, since one that runs the garbage collector may hold a lock that they need. When
an iteration ends, is closed or is garbage-collected, no further item is started, and each thread ends after
its own.
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
THREAD_NAME = "tokmill-loading"
T = TypeVar("T")
R = TypeVar("R")


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


def made_ahead(
    work: Callable[[T], R], items: Iterable[T], *, num_threads: int, ahead: int
) -> Generator[R, None, None]:
    """Yield `work(item)` for every item, in order, computed in threads; 0 threads compute on demand.

    At most `ahead` results wait or are being computed. Items are taken in the caller's thread. An exception
    of `items` or `work` is raised in the place of its result.
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
