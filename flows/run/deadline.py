"""The end of a process that was sent a signal: tidily if it can, but soon.

A signal unwinds the main thread: the run notes how it ended, children are stopped. What does not get there
in time (a kernel at work, a server that does not answer) is not waited for: four seconds after the signal
the process ends from a thread of its own and takes its children along. That is safe at any moment, because
an artifact is published whole or not at all.
"""

import os
import threading
from collections.abc import Callable

from tokmill.flows.server.children import end_all

SECONDS = 4.0

_set = threading.Lock()
_last_words: Callable[[int], None] | None = None


def end_soon(number: int, seconds: float = SECONDS) -> None:
    """End this process, which was sent signal `number`, in so many seconds; the first call counts."""
    if _set.acquire(blocking=False):
        timer = threading.Timer(seconds, _end, [number])
        timer.daemon = True
        timer.start()


def last_words(say: Callable[[int], None]) -> None:
    """Have `say` called with the signal before the process is ended."""
    global _last_words  # noqa: PLW0603 - there is one end of a process
    _last_words = say


def _end(number: int) -> None:
    try:
        end_all()
        if _last_words is not None:
            _last_words(number)
    finally:
        os._exit(128 + number)
