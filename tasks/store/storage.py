"""Storage: the file operations of a store; all of `tasks.store` uses `STORAGE`, which chooses by path.

    <cache>/tokmill/mirrors/<digest>/…    the mirror of a store on object storage: `tasks.store.mirrored`
    any other path                        local: `tasks.store.local`

Both keep the promises of `tasks.store.interface`. A process without object storage imports nothing of it.
The catalog's DuckDB file, the cache of file digests and the source files are always local and do not go
through here. A test (`tests/test_tasks/test_store_storage.py`) lists who else uses files directly, and why.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Final

from tokmill.tasks.store.interface import DamagedError, Entry, FileKind, FileState, Lock, Storage
from tokmill.tasks.store.local import LocalStorage
from tokmill.tasks.store.mirrors import MARK

__all__ = ["STORAGE", "DamagedError", "Entry", "FileKind", "FileState", "Lock", "Storage", "holding"]


class RoutedStorage:
    """Hands each operation to the storage of its path."""

    def __init__(self) -> None:
        self._local = LocalStorage()

    def _at(self, path: Path | str) -> Storage:
        if MARK not in str(path):
            return self._local
        from tokmill.tasks.store.mirrored import mirrored_at

        return mirrored_at(str(path)) or self._local

    def state(self, path: Path | str) -> FileState:
        """See `Storage`."""
        return self._at(path).state(path)

    def is_taken(self, path: Path) -> bool:
        """See `Storage`."""
        return self._at(path).is_taken(path)

    def exists(self, path: Path) -> bool:
        """See `Storage`."""
        return self._at(path).exists(path)

    def is_file(self, path: Path) -> bool:
        """See `Storage`."""
        return self._at(path).is_file(path)

    def is_folder(self, path: Path) -> bool:
        """See `Storage`."""
        return self._at(path).is_folder(path)

    def entries(self, folder: Path | str) -> list[Entry]:
        """See `Storage`."""
        return self._at(folder).entries(folder)

    def tree(self, folder: Path) -> Iterator[Path]:
        """See `Storage`."""
        return self._at(folder).tree(folder)

    def resolved(self, path: Path) -> str:
        """See `Storage`."""
        return self._at(path).resolved(path)

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """See `Storage`."""
        return self._at(path).opened(path)

    def read(self, path: Path, most_bytes: int) -> bytes:
        """See `Storage`."""
        return self._at(path).read(path, most_bytes)

    def digest(self, path: Path) -> str:
        """See `Storage`."""
        return self._at(path).digest(path)

    def create(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        self._at(path).create(path, data)

    def replace(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        self._at(path).replace(path, data)

    def leave(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        self._at(path).leave(path, data)

    def stamps(self, folder: Path) -> dict[str, Hashable]:
        """See `Storage`."""
        return self._at(folder).stamps(folder)

    def touch(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).touch(path)

    def make_folder(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).make_folder(path)

    def sync(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).sync(path)

    def publish(self, folder: Path, place: Path) -> bool:
        """See `Storage`."""
        return self._at(folder).publish(folder, place)

    def move(self, source: Path, target: Path) -> None:
        """See `Storage`."""
        self._at(source).move(source, target)

    def remove(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).remove(path)

    def remove_tree(self, folder: Path) -> None:
        """See `Storage`."""
        self._at(folder).remove_tree(folder)

    def lock(self, path: Path) -> Lock:
        """See `Storage`."""
        return self._at(path).lock(path)

    def free_bytes(self, path: Path) -> int:
        """See `Storage`."""
        return self._at(path).free_bytes(path)

    def fetch(self, place: Path, names: Sequence[str] | None = None) -> None:
        """See `Storage`."""
        self._at(place).fetch(place, names)

    def arriving(self, place: Path) -> Path:
        """See `Storage`."""
        return self._at(place).arriving(place)

    def fetch_file(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).fetch_file(path)

    def let_go(self, place: Path) -> None:
        """See `Storage`."""
        self._at(place).let_go(place)

    def prefetch(self, paths: Sequence[Path]) -> None:
        """See `Storage`."""
        if paths:
            self._at(paths[0]).prefetch(paths)

    def refresh(self, root: Path) -> None:
        """See `Storage`."""
        self._at(root).refresh(root)

    def pull(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).pull(path)

    def push(self, path: Path) -> None:
        """See `Storage`."""
        self._at(path).push(path)


@contextmanager
def holding(lock: Lock, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock for a block; `waiting` is called with the owner if the lock is not free at once."""
    if not lock.try_acquire():
        waiting(lock.owner())
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


STORAGE: Final[Storage] = RoutedStorage()
