"""Writes that survive a crash: the file's bytes first, then its name, then the folder that holds the name."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def told_as(what: str) -> Iterator[None]:
    """Raise the operating system's errors of the block as StoreError: "`what`: no space left on device …"."""
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
    """Write `path` so that a reader, and a crash, sees the old bytes or the new ones and nothing between."""
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        write_new(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file and flush it, or leave none; fails with FileExistsError if it is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    sync_path(path.parent)


class Lack(NamedTuple):
    """What a file system has no more of, in words, and what to do about it."""

    what: str
    advice: str


_NO_SPACE = Lack("no space left", "make room and run again")
_TOO_LARGE = Lack(
    "a file would be larger than is allowed",
    "raise the limit (`ulimit -f`), or use a file system for larger files, and run again",
)


def lack_of(error: BaseException) -> Lack | None:
    """What `error`, or what caused it, says to be exhausted: the disk or a quota, or a file's size."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            if cause.errno in _FULL:
                return _NO_SPACE
            if cause.errno == errno.EFBIG:
                return _TOO_LARGE
        cause = cause.__cause__ or cause.__context__
    return None
