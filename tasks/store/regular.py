"""Reads regular files only.

The path in a record or label may lead to a FIFO without a writer, an endless device, or a link out of the
store. None of these is ever opened. The path is checked first, opened without following links and without
blocking, and the open file is checked again.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from tokmill.tasks.store.digest import new_hash

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def opened_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file to read its bytes.

    Raises:
        FileNotFoundError: the file, or its folder, does not exist.
        OSError: it is a link, a folder or a special file, or cannot be opened.
    """
    try:
        _check(os.lstat(path), path)
        descriptor = os.open(path, _FLAGS)
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), path)
        yield file


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes`.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is not a regular file, is larger, or cannot be read.
    """
    with opened_regular(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EINVAL, f"has more than {most_bytes} bytes", str(path))
    return data


def digest_regular(path: Path) -> str:
    """Return the BLAKE2b-256 digest of a regular file's bytes in hexadecimal; raises as `opened_regular`."""
    with opened_regular(path) as file:
        return hashlib.file_digest(file, new_hash).hexdigest()


def _check(state: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, f"is a {_kind(state.st_mode)}, not a regular file", str(path))


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISLNK, "link"), (stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "device or socket")


def is_link(path: Path) -> bool:
    """Whether a path is a link, wherever it leads."""
    return path.is_symlink()


def links_in(folder: Path) -> list[Path]:
    """Return the links in a folder, wherever they lead; none if it is missing or may not be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_symlink()]
    return []
