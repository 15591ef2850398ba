"""Objects by URL: whole, in ranges, and as files that are read on or at random.

Each request is tried again (`tasks.remote.faults`). What is read as a file is one state of the object: every
range asks for the ETag, or else the size, that it was opened with. Functions raise OSErrors.
"""

import errno
import io
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.remote.faults import ChangedError, persevering
from tokmill.tasks.remote.location import Info, Location
from tokmill.tasks.remote.services import service_of
from tokmill.tokenizer.core.stopping import raise_if_stopped

RANGE_BYTES = 16 << 20  # of a download, at first
FIRST_PART_BYTES = 256 << 10  # of another stream; ranges double up to PART_BYTES
PART_BYTES = 8 << 20
AHEAD = 4  # ranges in flight or waiting
_LOOKING_SECONDS = 0.5
_MAX_BYTES = 16 << 30  # of a model with its tokenizer


def stat(url: str) -> Info:
    """Return what the service says about an object."""
    service = service_of(url)
    return persevering(lambda: service.head(url), url)


def listed(folder: str, *, recursive: bool = True) -> Iterator[Info]:
    """Yield what is below the URL of a folder, page by page; nothing if there is no such folder.

    Args:
        folder: with or without a slash at its end.
        recursive: yield all objects; otherwise objects and folders one step below.
    """
    for page in service_of(folder).pages(folder, recursive=recursive):
        yield from page


def read(url: str, most_bytes: int) -> bytes:
    """Return an object's bytes; raises OSError if it has more than `most_bytes`."""
    data = read_range(url, 0, None)
    if len(data) > most_bytes:
        raise OSError(errno.EINVAL, f"has more than {most_bytes} bytes", url)
    return data


def read_range(url: str, start: int, end: int | None, etag: str = "") -> bytes:
    """Return the bytes [start, end) of an object, to its end if `end` is None.

    Raises:
        ChangedError: its ETag is not `etag`, if that is given.
    """
    service = service_of(url)
    return persevering(lambda: service.get(url, start, end, etag)[0], url)


def write(url: str, data: bytes) -> None:
    """Write an object."""
    service = service_of(url)
    persevering(lambda: service.put(url, data), url)


def create(url: str, data: bytes) -> None:
    """Write an object that does not exist, or has these very bytes.

    Raises:
        FileExistsError: it exists with others.
    """
    service = service_of(url)
    try:
        persevering(lambda: service.create(url, data), url)
    except (ChangedError, FileExistsError) as error:
        with suppress(FileNotFoundError):
            if read_range(url, 0, None) == data:
                return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url) from error


def upload(path: Path, url: str) -> None:
    """Write a local file of any size as an object."""
    service_of(url).upload(path, url)


def download(state: Info, path: Path) -> None:
    """Write an object, in a known state, to a new local file.

    Raises:
        ChangedError: the object was replaced meanwhile (if its ETag is known), or is shorter.
    """
    with path.open("xb") as file, streamed(state, first_bytes=RANGE_BYTES) as stream:
        while block := stream.read(RANGE_BYTES):
            file.write(block)


def remove(urls: Iterable[str]) -> None:
    """Delete objects, in this order; none need exist."""
    for url in urls:
        persevering(partial(service_of(url).remove, url), url)


def files_at(url: str) -> list[Info]:
    """Return the object at a URL, or those directly below it, sorted.

    Raises:
        SourceError: there is neither, or access is refused.
        MachineError: the service cannot be reached, or goes on failing.
    """
    try:
        try:
            return [stat(url)]
        except FileNotFoundError:
            below = sorted(listed(url.rstrip("/"), recursive=False), key=lambda info: info.url)
    except OSError as error:
        raise unreadable(url, error) from error
    files = [info for info in below if not info.is_folder and not info.url.endswith("/")]
    if not files:
        raise SourceError(f"{url} cannot be read (there is no such object); correct the URL")
    return files


@contextmanager
def fetched(location: Location) -> Iterator[Path]:
    """Yield a path to a file or folder: its own if it is local, else that of a copy, deleted afterwards.

    Raises:
        SourceError: there is no such object, access is refused, or the files are too large for a tokenizer's.
        MachineError: the service cannot be reached, or goes on failing.
    """
    if isinstance(location, Path):
        yield location
        return
    files = files_at(location.url)
    if sum(file.num_bytes for file in files) > _MAX_BYTES:
        raise SourceError(
            f"{location} holds more than {_MAX_BYTES >> 30} GiB; name the tokenizer's file itself"
        )
    with tempfile.TemporaryDirectory(prefix="tokmill-fetched-") as folder:
        for file in files:
            try:
                download(file, Path(folder, file.url.rpartition("/")[2]))
            except OSError as error:
                raise unreadable(file.url, error) from error
        yield Path(folder, location.name) if files[0].url == location.url else Path(folder)


@contextmanager
def streamed(
    state: Info | str, start: int = 0, end: int | None = None, first_bytes: int | None = None
) -> Iterator["Stream"]:
    """Open an object, in a known state or by its URL, for reading on from byte `start`, at most to `end`."""
    state = stat(state) if isinstance(state, str) else state
    stop = state.num_bytes if end is None else min(end, state.num_bytes)
    stream = Stream(state, _ranges(start, stop, first_bytes or FIRST_PART_BYTES))
    try:
        yield stream
    finally:
        stream.close()


class Stream:
    """The ranges of an object in order, a few of them fetched ahead."""

    def __init__(self, state: Info, ranges: Iterator[tuple[int, int]]) -> None:
        self._state = state
        self._ranges = ranges
        self._waiting: deque[Future[bytes]] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._held = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, at least one before the end, and none there."""
        if not self._held:
            self._held = memoryview(self._next())
        taken, self._held = self._held[:size], self._held[size:]
        return bytes(taken)

    def close(self) -> None:
        """Fetch nothing more; ranges in flight are not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> bytes:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="ranges")
            self._fill(1)  # if the reader wants no more than the beginning, that is all
        if not self._waiting:
            return b""
        data = _awaited(self._waiting.popleft())
        self._fill(AHEAD)
        return data

    def _fill(self, number: int) -> None:
        while self._pool is not None and len(self._waiting) < number:
            if (bounds := next(self._ranges, None)) is None:
                return
            self._waiting.append(self._pool.submit(_range_of, self._state, *bounds))


def _ranges(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive ranges; small at first, so that a beginning costs little."""
    while start < stop:
        end = min(start + size, stop)
        yield start, end
        start, size = end, min(2 * size, PART_BYTES)


class RandomReader:
    """An object with random access: the part of Python's file interface that Arrow uses.

    Args:
        url: the object's URL.
        at_least: bytes to fetch at a time; more than what is asked for is kept for the next reads.

    Attributes:
        failure: the error that a read raised, if one did.
    """

    def __init__(self, url: str, at_least: int = 0) -> None:
        self._state = stat(url)
        self._at_least = at_least
        self._at = 0
        self._held, self._held_from = b"", 0
        self.closed = False
        self.failure: Exception | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes from the current position on, fewer only at the end."""
        stop = self._state.num_bytes if size < 0 else min(self._at + size, self._state.num_bytes)
        try:
            data = self._range(self._at, stop) if stop > self._at else b""
        except Exception as error:
            self.failure = error
            raise
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position."""
        self._at = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._state.num_bytes}[whence]
        )
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def close(self) -> None:
        """Forget what was fetched."""
        self._held, self.closed = b"", True

    def _range(self, start: int, stop: int) -> bytes:
        if not (self._held_from <= start and stop <= self._held_from + len(self._held)):
            end = min(max(stop, start + self._at_least), self._state.num_bytes)
            data = _side_by_side(self._state, start, end)
            if end == stop:
                return data
            self._held, self._held_from = data, start
        return self._held[start - self._held_from : stop - self._held_from]


def _side_by_side(state: Info, start: int, stop: int) -> bytes:
    pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="ranges")
    try:
        starts = range(start, stop, PART_BYTES)
        futures = [pool.submit(_range_of, state, at, min(at + PART_BYTES, stop)) for at in starts]
        return b"".join(map(_awaited, futures))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _awaited(future: "Future[bytes]") -> bytes:
    """Return the result of a range, and look meanwhile whether the work was stopped."""
    while not future.done():
        wait([future], timeout=_LOOKING_SECONDS)
        raise_if_stopped()
    return future.result()


def _range_of(state: Info, start: int, stop: int) -> bytes:
    data = read_range(state.url, start, stop, state.etag)
    if len(data) != stop - start:
        raise ChangedError(errno.ESTALE, "the object has become shorter", state.url)
    return data
