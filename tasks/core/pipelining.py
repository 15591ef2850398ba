"""Work that goes on in another thread while the caller works: reading ahead of it, writing behind it.

What takes long (kernels, digests, files) is done without the interpreter's lock, so that two threads are
twice as fast where there are two processors. Items stay in order, and what comes out does not depend on
timing. An exception on one side is raised on the other, in its place among the items; whoever leaves waits
until the thread has stopped, which is after the item that it works on.

Memory is bounded in units, say bytes: nothing further is begun while `limit` units or more are in the other
side's hands or on the way there. So a single item that is larger than that is alone.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T], *, limit: int, size: Callable[[T], int]) -> Iterator[T]:
    """Yield items that a thread takes from their iterable ahead of time.

    Args:
        items: iterated in that thread, and closed there if it is a generator.
        limit: units; an item is in the caller's hands until the next one is asked for.
        size: units of an item.
    """
    channel = _Channel(limit, size)

    def take() -> None:
        iterator = iter(items)
        try:
            while channel.has_room():
                channel.add(next(iterator))
        except StopIteration:
            channel.end()
        except BaseException as error:  # it is the caller's
            channel.end(error)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    thread = Thread(target=take, name="read_ahead", daemon=True)
    thread.start()
    try:
        yield from channel.items()
    finally:
        channel.close()
        thread.join()


@contextmanager
def write_behind(
    work: Callable[[T], object], *, limit: int, size: Callable[[T], int]
) -> Iterator[Callable[[T], None]]:
    """Give a function that leaves an item to a thread, which does `work` on it; all is done at the end.

    If the block is left by an exception, what has not begun stays undone. What `work` raises is raised by the
    next call of the function, or at the end of the block.

    Args:
        work: is called in that thread, item by item.
        limit: units; an item is in the thread's hands until the work on it is done.
        size: units of an item.
    """
    channel = _Channel(limit, size)
    failures: list[BaseException] = []

    def take() -> None:
        try:
            for item in channel.items():
                work(item)
        except BaseException as error:  # it is the caller's
            failures.append(error)
        finally:
            channel.close()

    def leave(item: T) -> None:
        if not channel.has_room():
            raise failures[0]
        channel.add(item)

    thread = Thread(target=take, name="write_behind", daemon=True)
    thread.start()
    try:
        yield leave
        channel.end()
    except BaseException:
        channel.close()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]


class _Channel(Generic[T]):
    """Items on their way from one thread to another."""

    def __init__(self, limit: int, size: Callable[[T], int]) -> None:
        self._limit = limit
        self._size = size
        self._changed = Condition()
        self._waiting: deque[T] = deque()
        self._held = 0
        self._is_ended = False
        self._is_closed = False
        self._error: BaseException | None = None

    def has_room(self) -> bool:
        """Wait until there is room for an item; False if nobody wants one any longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._held < self._limit)
            return not self._is_closed

    def add(self, item: T) -> None:
        """Send an item."""
        with self._changed:
            self._waiting.append(item)
            self._held += self._size(item)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Say that no item will come after those that were sent, but perhaps an error."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Say that nobody will take or send any longer."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def items(self) -> Iterator[T]:
        """Yield items as they come, and raise the error that ends them."""
        while taken := self._taken():
            size = self._size(taken[0])
            yield taken.pop()
            with self._changed:
                self._held -= size
                self._changed.notify_all()
        if self._error is not None:
            raise self._error

    def _taken(self) -> list[T]:
        """Wait for an item and return it alone, or nothing if none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended or self._is_closed)
            return [self._waiting.popleft()] if self._waiting else []
