"""Storage: the file operations of a store, as one small interface; all of `tasks.store` uses `STORAGE`.

There is one implementation, for local folders and for network file systems with POSIX semantics.
Another one would replace `STORAGE`, or be chosen there by path. It has to keep these promises:

- `create` fails if the name is taken, also when two processes try at once; version labels depend on it. An
  object store needs a conditional write (`If-None-Match: *`).
- `replace` and `create` return when the data is durable, and a reader sees the old bytes or the new ones.
- `publish` makes a whole folder appear at once. A local rename does that. Object stores have no rename; there
  the record is the commit point: upload every file first and `record.json` last. Readers already ignore
  a folder without a record (`tasks.store.layout`).
- `lock` gives a lock that ends with the process that holds it. An object store needs a lease with a deadline.
- `opened` follows no link and opens regular files only.

The catalog's DuckDB file, the cache of file digests and the source files are always local and do not go
through here. A test (`tests/test_tasks/test_store_storage.py`) lists who else uses files directly, and why.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from tokmill.tasks.store.durable import sync_path, write_atomically, write_new
from tokmill.tasks.store.locks import ProcessLock
from tokmill.tasks.store.regular import digest_regular, opened_regular, read_regular

FileKind: TypeAlias = Literal["file", "folder", "other"]
"""A regular file, a folder, or anything else: a link, a FIFO, a device."""


class FileState(NamedTuple):
    """The kind, size and time of a name; links are not followed."""

    kind: FileKind
    num_bytes: int
    mtime_ns: int


class Entry(Protocol):
    """A name in a folder."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        ...

    @property
    def path(self) -> str:
        """The whole path."""
        ...

    def is_dir(self) -> bool:
        """Whether it is a folder, or a link to one."""
        ...


class Lock(Protocol):
    """An exclusive lock between processes; it ends with the process that holds it."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        ...

    def acquire(self) -> None:
        """Wait for the lock, however long that takes."""
        ...

    def release(self) -> None:
        """Let the lock go."""
        ...

    def owner(self) -> str:
        """Return who holds the lock, in words."""
        ...


class Storage(Protocol):
    """File operations of a store on absolute paths; each raises OSError if the system refuses it."""

    def state(self, path: Path | str) -> FileState:
        """Return the state of a name; raises FileNotFoundError if there is none."""
        ...

    def is_taken(self, path: Path) -> bool:
        """Whether anything has this name, even a link that leads nowhere."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def is_file(self, path: Path) -> bool:
        """Whether there is a file of this name."""
        ...

    def is_folder(self, path: Path) -> bool:
        """Whether there is a folder of this name."""
        ...

    def entries(self, folder: Path | str) -> list[Entry]:
        """Return what is in a folder, in no particular order; nothing if it is missing or may not be read."""
        ...

    def tree(self, folder: Path) -> Iterator[Path]:
        """Yield all files and folders below a folder, in no particular order, without following links."""
        ...

    def resolved(self, path: Path) -> str:
        """Return the path with every link followed."""
        ...

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """Open a regular file to read it; raises OSError for a link, a folder or a special file."""
        ...

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Return the bytes of a regular file; raises as `opened`, and if it has more than `most_bytes`."""
        ...

    def digest(self, path: Path) -> str:
        """Return the BLAKE2b-256 digest of a regular file; raises as `opened`."""
        ...

    def create(self, path: Path, data: bytes) -> None:
        """Write a file durably, and its folder if need be; raises FileExistsError if the name is taken."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file durably; a reader, or a crash, finds either the old bytes or the new ones."""
        ...

    def touch(self, path: Path) -> None:
        """Set the modification time of a file to now."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents if they do not exist."""
        ...

    def sync(self, path: Path) -> None:
        """Flush a file's bytes, or a folder's entries, to the disk."""
        ...

    def publish(self, folder: Path, place: Path) -> None:
        """Move a folder to its place in one durable step: all of it appears there, or nothing."""
        ...

    def move(self, source: Path, target: Path) -> None:
        """Move a file or folder within the store, in one step."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        ...

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all that is in it, as far as possible; never raises."""
        ...

    def lock(self, path: Path) -> Lock:
        """Return a lock of this name, not yet taken."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes on the file system of a path."""
        ...


class LocalStorage:
    """Storage in local folders; see `Storage`.

    What is written is flushed before its name is, and its name (the folder's entry) before the call returns.
    """

    def state(self, path: Path | str) -> FileState:
        """Return the state of a name; raises FileNotFoundError if there is none."""
        found = os.lstat(path)
        return FileState(_kind(found.st_mode), found.st_size, found.st_mtime_ns)

    def is_taken(self, path: Path) -> bool:
        """Whether anything has this name, even a link that leads nowhere."""
        return os.path.lexists(path)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of this name."""
        return path.exists()

    def is_file(self, path: Path) -> bool:
        """Whether there is a file of this name."""
        return path.is_file()

    def is_folder(self, path: Path) -> bool:
        """Whether there is a folder of this name."""
        return path.is_dir()

    def entries(self, folder: Path | str) -> list[Entry]:
        """Return what is in a folder; nothing if it is missing or may not be read."""
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(folder) as found:
            return list(found)
        return []

    def tree(self, folder: Path) -> Iterator[Path]:
        """Yield all files and folders below a folder, without following links."""
        return folder.rglob("*")

    def resolved(self, path: Path) -> str:
        """Return the path with every link followed."""
        return os.path.realpath(path)

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """Open a regular file to read it."""
        return opened_regular(path)

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Return the bytes of a regular file of at most `most_bytes`."""
        return read_regular(path, most_bytes)

    def digest(self, path: Path) -> str:
        """Return the BLAKE2b-256 digest of a regular file."""
        return digest_regular(path)

    def create(self, path: Path, data: bytes) -> None:
        """Write a file durably, and its folder if need be; raises FileExistsError if the name is taken."""
        write_new(path, data)

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file durably: a temporary one, then a rename."""
        write_atomically(path, data)

    def touch(self, path: Path) -> None:
        """Set the modification time of a file to now."""
        os.utime(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents if they do not exist."""
        path.mkdir(parents=True, exist_ok=True)

    def sync(self, path: Path) -> None:
        """Flush a file's bytes, or a folder's entries, to the disk."""
        sync_path(path)

    def publish(self, folder: Path, place: Path) -> None:
        """Move a folder to its place by one rename; its own files are flushed by now."""
        if not place.parent.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            sync_path(place.parent.parent)
        folder.rename(place)
        sync_path(place.parent)

    def move(self, source: Path, target: Path) -> None:
        """Move a file or folder by one rename."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all that is in it, as far as possible; never raises."""
        shutil.rmtree(folder, ignore_errors=True)

    def lock(self, path: Path) -> Lock:
        """Return a lock of this name: `flock` on a file."""
        return ProcessLock(path)

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes on the file system of a path."""
        return shutil.disk_usage(path).free


def _kind(mode: int) -> FileKind:
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


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


STORAGE: Final[Storage] = LocalStorage()
