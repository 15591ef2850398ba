"""Overlap the caller's work with a second thread that reads ahead of it or writes after it.

Kernels, digests and file operations release the interpreter lock, so two threads on two processors are about
twice as fast. Items stay in order, and the result does not depend on timing. An exception in one thread is
raised in the other, at its place among the items. Leaving the iterator or the `with` block waits for the
thread, which first finishes the item that it works on.

Memory is bounded in units of the caller's choice, such as bytes: no further item is started while the other
thread holds or awaits `limit` units or more. So an item larger than `limit` is processed alone.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Generic, TypeVar

from tokmill.tokenizer.core.stopping import limited_context

T = TypeVar("T")


def read_ahead(items: Iterable[T], *, limit: int, size: Callable[[T], int]) -> Generator[T]:
    """Yield the items of an iterable, which a thread reads ahead of the caller.

    Args:
        items: iterated in the thread, and closed there if it is a generator.
        limit: units that may be read ahead; an item counts until the caller requests the next one.
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
        except BaseException as error:  # raised in the caller's thread
            channel.end(error)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    thread = Thread(target=limited_context().run, args=(take,), name="read_ahead", daemon=True)
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
    """Yield a function that hands an item to a thread, which calls `work` on it; finish all at the end.

    If an exception leaves the block, items that were not started are dropped. An exception of `work` is
    raised by the next call of the function, or at the end of the block.

    Args:
        work: called in the thread, once per item.
        limit: units that may wait; an item counts until the work on it is done.
        size: units of an item.
    """
    channel = _Channel(limit, size)
    failures: list[BaseException] = []

    def take() -> None:
        try:
            for item in channel.items():
                work(item)
        except BaseException as error:  # raised in the caller's thread
            failures.append(error)
        finally:
            channel.close()

    def leave(item: T) -> None:
        if not channel.has_room():
            raise failures[0]
        channel.add(item)

    thread = Thread(target=limited_context().run, args=(take,), name="write_behind", daemon=True)
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
    """A bounded queue of items from one thread to another."""

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
        """Wait until there is room for an item; False if the receiver has closed the channel."""
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
        """Mark the end of the items, with the error that ended them, if any."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Close the channel for both sides."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def items(self) -> Iterator[T]:
        """Yield items as they arrive, and raise the error that ended them."""
        while taken := self._taken():
            size = self._size(taken[0])
            yield taken.pop()
            with self._changed:
                self._held -= size
                self._changed.notify_all()
        if self._error is not None:
            raise self._error

    def _taken(self) -> list[T]:
        """Wait for an item and return a list of it, or an empty list at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended or self._is_closed)
            return [self._waiting.popleft()] if self._waiting else []
