"""Work done ahead of whoever wants it, by a few threads, results in order.

Laws. At most `ahead` results are made or being made that nobody has taken. When the generator ends, is
closed or collected, or when a piece of work raises, nothing more is begun, and each thread ends with what it
is at. Nobody waits for that: whoever collects garbage may hold what a thread needs to end.
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
        num_threads: 0 does the work in the caller's thread when it is wanted.
        ahead: results that may wait, those that are being made included; ≥ 1.

    Raises:
        Exception: what `items` or `work` raises, where its result would have come.
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
