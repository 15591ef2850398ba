"""Read an object as a file: from one position on with ranges fetched ahead, or at random.

What is read is one state of the object: every range asks for the state that was there when it was opened (its
ETag, where the service offers conditional reads; its size otherwise), and another one is an error. A lost
connection costs the range that it carried: ranges are fetched again by `tasks.remote.objects`, so a
stream goes on at the offset where it broke off.

Ranges begin small, so that the beginning of a large object costs little, and double up to `PART_BYTES`.
At most `AHEAD` of them are in flight or waiting, so a stream holds `AHEAD * PART_BYTES` at most.
"""

import errno
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from tokmill.tasks.remote.faults import ChangedError
from tokmill.tasks.remote.objects import read_range, stat
from tokmill.tasks.remote.services import Info
from tokmill.tokenizer.core.stopping import raise_if_stopped

FIRST_PART_BYTES = 256 << 10
PART_BYTES = 8 << 20
AHEAD = 4
_LOOKING_SECONDS = 0.5


@contextmanager
def streamed(url: str, start: int = 0, end: int | None = None) -> Iterator["Stream"]:
    """Open an object for reading on from byte `start`; nothing is fetched beyond `end`.

    Raises:
        OSError: there is no such object, access to it is refused, or it changes while it is read; or the
            service cannot be reached, or goes on failing.
    """
    with stream_of(stat(url), start, end) as stream:
        yield stream


@contextmanager
def stream_of(state: Info, start: int = 0, end: int | None = None) -> Iterator["Stream"]:
    """Open an object in a known state; see `streamed`."""
    stop = state.num_bytes if end is None else min(end, state.num_bytes)
    stream = Stream(state, parts(start, stop))
    try:
        yield stream
    finally:
        stream.close()


def tag_of(state: Info) -> str:
    """Return a hint that changes when the object does: its ETag and time; empty if the service has none."""
    has_tag = state.etag and state.etag != f"{state.num_bytes}-0"
    return f"{state.etag} {state.modified_ns}" if has_tag else ""


def parts(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive ranges from `start` to `stop`."""
    size = FIRST_PART_BYTES
    while start < stop:
        end = min(start + size, stop)
        yield start, end
        start, size = end, min(2 * size, PART_BYTES)


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
        found = _awaited(self._waiting.popleft())
        self._fill(AHEAD)
        return found

    def _fill(self, number: int) -> None:
        while self._pool is not None and len(self._waiting) < number:
            if (following := next(self._ranges, None)) is None:
                return
            self._waiting.append(self._pool.submit(_range_of, self._state, *following))


class RandomReader:
    """An object with random access: the part of Python's file interface that Arrow uses.

    Args:
        url: the object's URL.
        at_least: bytes to fetch at a time; more than what is asked for is kept for the next reads.

    Attributes:
        failure: the error that a read raised, if one did.

    Raises:
        OSError: as for `streamed`.
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
            found = self._range(self._at, stop) if stop > self._at else b""
        except Exception as error:
            self.failure = error
            raise
        self._at += len(found)
        return found

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
            fetched = _fetched(self._state, start, end)
            if end == stop:
                return fetched
            self._held, self._held_from = fetched, start
        return self._held[start - self._held_from : stop - self._held_from]


def _fetched(state: Info, start: int, stop: int) -> bytes:
    """Fetch a range, a long one in several ranges side by side."""
    pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="ranges")
    try:
        futures = [
            pool.submit(_range_of, state, at, min(at + PART_BYTES, stop))
            for at in range(start, stop, PART_BYTES)
        ]
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
    found = read_range(state.url, start, stop, state.etag)
    if len(found) != stop - start:
        raise ChangedError(errno.ESTALE, "the object has become shorter", state.url)
    return found
