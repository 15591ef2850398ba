"""Prefetch: compute results ahead of the consumer in a few threads, and yield them in order.

Laws. At most `ahead` results are waiting or being computed. When the generator ends, is closed or is
garbage-collected, or when `work` raises, no further item is started, and each thread ends after its current
item. Nothing waits for the threads: a thread that runs the garbage collector may hold a lock that they need.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

THREAD_NAME = "tokmill-loading"


def made_ahead(
    work: Callable[[T], R], items: Iterable[T], *, num_threads: int, ahead: int
) -> Generator[R, None, None]:
    """Yield `work(item)` for every item, in order.

    Args:
        work: called in one of the threads.
        items: taken one by one, in the caller's thread.
        num_threads: 0 works in the caller's thread, on demand.
        ahead: the most results that wait or are being computed; ≥ 1.

    Raises:
        Exception: any exception of `items` or `work`, in the place of its result.
    """
    if num_threads == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix=THREAD_NAME)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
