"""A store's files on disk: writes that survive a crash, reads of regular files alone, locks of processes.

A lock belongs to an open file (`fcntl.flock`), and the kernel frees it when the process ends.
"""

import errno
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError

FileKind: TypeAlias = Literal["file", "folder", "other"]  # other: a link, a FIFO, a device
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW  # who holds a lock writes into its file


class DamagedError(OSError):
    """A file of an artifact is missing in the store, or is not what was published."""


class FileState(NamedTuple):
    """The kind, size and time of a name; links are not followed.

    Attributes:
        identity: equal for the names that hard links gave one file; None where no name shares a file.
    """

    kind: FileKind
    num_bytes: int
    mtime_ns: int
    identity: tuple[int, int] | None = None


def state(path: Path | str) -> FileState:
    """Return the state of a name; raises FileNotFoundError if there is none."""
    found = os.lstat(path)
    kinds: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
    identity = (found.st_dev, found.st_ino) if found.st_nlink > 1 else None
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return FileState(kind, found.st_size, found.st_mtime_ns, identity)


def entries(folder: Path | str) -> "list[os.DirEntry[str]]":
    """Return what is in a folder, in no particular order; nothing if it is missing or may not be read."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(folder) as found:
        return list(found)
    return []


def touch(path: Path) -> None:
    """Set the modification time of a file or folder to the present, by the clock of its file system."""
    os.utime(path, follow_symlinks=False)


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file to read its bytes."""
    try:
        _check_regular(os.lstat(path), path)
        descriptor = os.open(path, _FLAGS)
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    with os.fdopen(descriptor, "rb") as file:
        _check_regular(os.fstat(descriptor), path)
        yield file


def _check_regular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file, but a link, a folder or a device", str(path))


def read(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes`."""
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EINVAL, f"has more than {most_bytes} bytes", str(path))
    return data


def sync_path(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, flush: bool = True, mtime_ns: int | None = None) -> None:
    """Write a file, and its folder if need be: a temporary file, then a rename.

    Unless it is flushed, it need not survive a crash of the machine.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    with _new_file(temporary, data, flush=flush):
        if mtime_ns is not None:
            os.utime(temporary, ns=(mtime_ns, mtime_ns))
        temporary.replace(path)
    if flush:
        sync_path(path.parent)


def create(path: Path, data: bytes) -> None:
    """Write a new file and flush it, or leave none; raises FileExistsError if the name is taken."""
    with _new_file(path, data):
        pass
    sync_path(path.parent)


@contextmanager
def _new_file(path: Path, data: bytes, *, flush: bool = True) -> Iterator[None]:
    """Write a new file that is locked during the block; none is left if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked_file(path) as file:
        try:
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _locked_file(path: Path) -> BinaryIO:
    """Create a file and lock it; again if `sweep_unfinished` of somebody else was between the two."""
    while True:
        file = path.open("xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return file
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        file.close()


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to write into, which becomes `out` at the end; after an error there is none."""
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sweep_unfinished(folder: Path, below: str = "") -> None:
    """Remove what killed processes left of `replace`: nobody holds its lock."""
    for path in folder.glob(f"{below}.*.tmp"):
        with suppress(OSError), path.open("rb") as file:  # which is locked, gone, or of somebody else
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:  # else the name may be another file's by now
                path.unlink()


class Lack(NamedTuple):
    """A resource that ran out, in words, and advice."""

    what: str
    advice: str


_LACKS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), Lack("no space left", "make room and run again")),
    errno.EFBIG: Lack(
        "a file would exceed the size limit",
        "raise the limit (`ulimit -f`), or use a file system for larger files, and run again",
    ),
}


def lack_of(error: BaseException) -> Lack | None:
    """Return the resource that `error` or one of its causes reports as exhausted, if any."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in _LACKS):
        cause = cause.__cause__ or cause.__context__
    return _LACKS[cause.errno or 0] if isinstance(cause, OSError) else None


@contextmanager
def reported_as(what: str) -> Iterator[None]:
    """Raise an OSError of the block as StoreError: "`what`: no space left on device …"."""
    try:
        yield
    except OSError as error:
        lack = lack_of(error)
        raise StoreError(f"{what}: {error}{f'; {lack.advice}' if lack else ''}") from error


class ProcessLock:
    """An exclusive lock on `path`, owned by this object until it is released or its process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        return self._acquire(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def acquire(self) -> None:
        """Wait for the lock, however long that takes."""
        self._acquire(fcntl.LOCK_EX)

    def release(self) -> None:
        """Remove the file and let the lock go."""
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)  # first: after the release it may be another process's file
            os.close(self._descriptor)
            self._descriptor = None

    def owner(self) -> str:
        """Return the holder of the lock as written in the file, e.g. `process 42`."""
        try:
            return self.path.read_text(encoding="ascii", errors="replace").strip() or "unknown"
        except OSError:
            return "unknown"

    def _acquire(self, operation: int) -> bool:
        with reported_as(f"lock {self.path} cannot be taken"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                is_named = False  # the open file may have lost its name meanwhile
                descriptor = os.open(self.path, _LOCK_FLAGS, 0o644)
                try:
                    fcntl.flock(descriptor, operation)
                except BaseException as error:
                    os.close(descriptor)
                    if isinstance(error, BlockingIOError):
                        return False
                    raise
                with suppress(FileNotFoundError):
                    is_named = os.path.samestat(self.path.stat(), os.fstat(descriptor))
                if is_named:
                    self._descriptor = descriptor
                    with suppress(OSError):  # for those who wait; a full disk does not prevent the lock
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, f"process {os.getpid()}\n".encode("ascii"), 0)
                    return True
                os.close(descriptor)


@contextmanager
def holding(lock: ProcessLock, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock for a block; `waiting` is called with the owner if the lock is not free at once."""
    if not lock.try_acquire():
        waiting(lock.owner())
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
