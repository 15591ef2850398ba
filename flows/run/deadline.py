"""Ends a process within seconds after a signal, orderly if possible.

A signal unwinds the main thread: the run records how it ended, and children are stopped. That may take too
long, because a kernel is at work or a server does not answer. So four seconds after the signal a timer thread
ends the process and its children. That is safe at any moment, because an artifact is published whole or not
at all.
"""

import os
import threading
from collections.abc import Callable

from tokmill.flows.server.children import end_all

SECONDS = 4.0

_set = threading.Lock()
_last_words: Callable[[int], None] | None = None


def end_soon(number: int, seconds: float = SECONDS) -> None:
    """End this process after `seconds`, because of signal `number`; only the first call has an effect."""
    if _set.acquire(blocking=False):
        timer = threading.Timer(seconds, _end, [number])
        timer.daemon = True
        timer.start()


def last_words(say: Callable[[int], None]) -> None:
    """Call `say` with the signal's number before the process is ended."""
    global _last_words  # noqa: PLW0603 - a process ends once
    _last_words = say


def _end(number: int) -> None:
    try:
        end_all()
        if _last_words is not None:
            _last_words(number)
    finally:
        os._exit(128 + number)
