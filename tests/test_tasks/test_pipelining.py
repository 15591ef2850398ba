"""Reading ahead and writing behind: order, bounded memory, errors at their place, no threads left over."""

import threading
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.core.pipelining import read_ahead, write_behind

SIZES = st.lists(st.integers(0, 5), max_size=30)
LIMIT = st.integers(1, 12)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"read_ahead", "write_behind"}


def failing_after(number: int) -> Iterator[int]:
    yield from range(number)
    msg = "the disk is gone"
    raise OSError(msg)


@given(SIZES, LIMIT)
def test_items_taken_ahead_are_the_items(sizes: list[int], limit: int) -> None:
    assert list(read_ahead(sizes, limit=limit, size=lambda size: size)) == sizes
    assert not threads()


def test_an_error_comes_after_the_items_before_it() -> None:
    items = read_ahead(failing_after(3), limit=100, size=lambda _: 1)

    assert [next(items), next(items), next(items)] == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert not threads()


@pytest.mark.parametrize("limit", [1, 100])
def test_leaving_early_stops_the_thread_and_closes_the_generator(limit: int) -> None:
    closed = []

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(threading.current_thread().name)

    items = read_ahead(endless(), limit=limit, size=lambda _: 1)
    next(items)
    with pytest.raises(KeyboardInterrupt):
        items.throw(KeyboardInterrupt())
    assert closed == ["read_ahead"]
    assert not threads()


@given(SIZES, LIMIT)
def test_written_items_are_complete_and_in_order(sizes: list[int], limit: int) -> None:
    done: list[int] = []

    with write_behind(done.append, limit=limit, size=lambda size: size) as leave:
        for size in sizes:
            leave(size)

    assert done == sizes
    assert not threads()


def test_an_error_while_writing_reaches_the_caller_and_stops_the_work() -> None:
    done = []

    def work(item: int) -> None:
        if item == 2:
            msg = "no space left"
            raise OSError(msg)
        done.append(item)

    def run(items: list[int]) -> None:
        with write_behind(work, limit=1, size=lambda _: 1) as leave:
            for item in items:
                leave(item)

    with pytest.raises(OSError, match="no space left"):
        run(list(range(1_000)))
    assert done == [0, 1]
    with pytest.raises(OSError, match="no space left"):
        run([2])
    assert not threads()


class Item:
    """An object with weak references, so that its deletion can be observed."""


def test_items_that_were_not_started_are_dropped_on_an_interrupt() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work(item: Item | None) -> None:
        begun.set()
        may_end.wait()
        done.append(item)

    def interrupted() -> None:
        with write_behind(work, limit=100, size=lambda _: 1) as leave:
            leave(None)
            second = Item()
            weakref.finalize(second, may_end.set)  # once it is dropped, and not before
            leave(second)
            del second
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [None]
    assert not threads()
