"""Writes that survive a crash: the file's bytes are flushed first, then its name, then the name's folder."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def reported_as(what: str) -> Iterator[None]:
    """Raise an OSError of the block as StoreError: "`what`: no space left on device …"."""
    try:
        yield
    except OSError as error:
        lack = lack_of(error)
        raise StoreError(f"{what}: {error}{f'; {lack.advice}' if lack else ''}") from error


def sync_path(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` atomically: a reader, or a crash, sees the old bytes or the new ones."""
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    with _new_file(temporary, data):
        temporary.replace(path)
    sync_path(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file and flush it, or leave none; raises FileExistsError if the name is taken."""
    with _new_file(path, data):
        pass
    sync_path(path.parent)


@contextmanager
def _new_file(path: Path, data: bytes) -> Iterator[None]:
    """Write a new file, flushed, that is locked during the block; none is left if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise


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
    """Remove what killed processes left of `write_atomically`: nobody holds its lock.

    Args:
        folder: where to look.
        below: a pattern of folders in it, with a slash at its end, to look there.
    """
    for path in folder.glob(f"{below}.*.tmp"):
        with suppress(OSError), path.open("rb") as file:  # which is locked, gone, or of somebody else
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


class Lack(NamedTuple):
    """A resource that ran out, in words, and advice."""

    what: str
    advice: str


_NO_SPACE = Lack("no space left", "make room and run again")
_TOO_LARGE = Lack(
    "a file would exceed the size limit",
    "raise the limit (`ulimit -f`), or use a file system for larger files, and run again",
)


def lack_of(error: BaseException) -> Lack | None:
    """Return the resource that `error` or one of its causes reports as exhausted, if any."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            if cause.errno in _FULL:
                return _NO_SPACE
            if cause.errno == errno.EFBIG:
                return _TOO_LARGE
        cause = cause.__cause__ or cause.__context__
    return None
