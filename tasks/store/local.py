"""Storage in local folders, and on network file systems with POSIX semantics."""

import os
import shutil
import stat
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from io import BufferedReader
from pathlib import Path

from tokmill.tasks.store.durable import sync_path, write_atomically, write_new
from tokmill.tasks.store.interface import Entry, FileKind, FileState, Lock
from tokmill.tasks.store.locks import ProcessLock
from tokmill.tasks.store.regular import digest_regular, opened_regular, read_regular


class LocalStorage:
    """Storage in local folders; see `Storage`.

    What is written is flushed before its name is, and its name (the folder's entry) before the call returns.
    """

    def state(self, path: Path | str) -> FileState:
        """Return the state of a name; raises FileNotFoundError if there is none."""
        found = os.lstat(path)
        identity = (found.st_dev, found.st_ino) if found.st_nlink > 1 else None
        return FileState(_kind(found.st_mode), found.st_size, found.st_mtime_ns, identity)

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
        return os.path.realpath(str(path))  # the name alone: nothing has to arrive for it

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

    def leave(self, path: Path, data: bytes) -> None:
        """Write a file that need not survive a crash: a temporary one, then a rename, and no flush."""
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(data)
        temporary.replace(path)

    def stamps(self, folder: Path) -> dict[str, Hashable]:
        """Return the names in a folder, each with its inode and time; nothing if it is missing."""
        found: dict[str, Hashable] = {}
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    found[entry.name] = (state.st_ino, state.st_mtime_ns, state.st_size)
        return found

    def touch(self, path: Path) -> None:
        """Set the modification time of a file to now."""
        os.utime(path, follow_symlinks=False)

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents if they do not exist."""
        path.mkdir(parents=True, exist_ok=True)

    def sync(self, path: Path) -> None:
        """Flush a file's bytes, or a folder's entries, to the disk."""
        sync_path(path)

    def publish(self, folder: Path, place: Path) -> bool:
        """Move a folder to its place by one rename; its own files are flushed by now."""
        if not place.parent.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            sync_path(place.parent.parent)
        folder.rename(place)
        sync_path(place.parent)
        return True

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

    def fetch(self, place: Path, names: Sequence[str] | None = None) -> None:
        """Do nothing: all files are local."""

    def arriving(self, place: Path) -> Path:
        """Return the path itself: all files are local."""
        return place

    def fetch_file(self, path: Path) -> None:
        """Do nothing: all files are local."""

    def let_go(self, place: Path) -> None:
        """Do nothing: nothing is taken away."""

    def prefetch(self, paths: Sequence[Path]) -> None:
        """Do nothing: all files are local."""

    def refresh(self, root: Path) -> None:
        """Do nothing: a folder shows what is in it."""

    def pull(self, path: Path) -> None:
        """Do nothing: there is no copy."""

    def push(self, path: Path) -> None:
        """Do nothing: the file is in the store."""


def _kind(mode: int) -> FileKind:
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
