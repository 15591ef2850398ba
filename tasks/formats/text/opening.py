"""Open a file to read its bytes, wherever it is.

A local file is opened as such. An object is read in ranges: ahead of the reader, where it is read from one
position on, and on demand where a format needs random access (`tasks.formats.text.columnar`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.remote.location import Location, RemoteFile
from tokmill.tasks.remote.objects import stat

_BLOCK_BYTES = 1 << 20


class Readable(Protocol):
    """What is read from one position on, such as an open file."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, at least one before the end, and none there."""
        ...


@contextmanager
def opened(file: Location, start: int = 0, end: int | None = None) -> Iterator[Readable]:
    """Open a file for reading on from byte `start`; nothing is read beyond `end`.

    Raises:
        SourceError: it is missing, not permitted, or not a regular file.
        MachineError: the network fails.
        OSError: the operating system cannot open it.
    """
    if isinstance(file, RemoteFile):
        from tokmill.tasks.remote.streaming import streamed

        with streamed(file.url, start, end) as stream:
            yield stream
    else:
        refuse_irregular(file)
        with file.open("rb") as local:
            if start:
                local.seek(start)
            yield local


def read_all(file: Location) -> bytes:
    """Return a file's bytes.

    Raises:
        SourceError: it is missing, not permitted, or not a regular file.
        MachineError: the disk, the network or the service fails.
    """
    try:
        with opened(file) as stream:
            return b"".join(iter(lambda: stream.read(_BLOCK_BYTES), b""))
    except OSError as error:
        raise unreadable(file, error) from error


def size_of(file: Location) -> int:
    """Return a file's size in bytes.

    Raises:
        OSError: it is missing, or not permitted.
    """
    if isinstance(file, RemoteFile):
        return stat(file.url).num_bytes
    return file.stat().st_size
