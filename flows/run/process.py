"""How a process of ours begins and ends: who called it, and that it is gone within seconds after a signal.

A signal unwinds the main thread: the run records its end, and children are stopped. That takes too long while
a kernel computes or if a server does not answer. So a timer thread ends the process and all that it started
(a pool of processes, a cluster of Dask or Ray on this machine) four seconds after the signal. That is safe at
any moment, because an artifact is published whole or not at all.
"""

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tokmill.flows.server.children import end_all, end_descendants

SECONDS = 4.0

_ending = threading.Lock()
_last_words: Callable[[int], None] | None = None


def end_soon(number: int, seconds: float = SECONDS) -> None:
    """End this process after `seconds`, because of signal `number`; the earliest of several calls decides."""
    timer = threading.Timer(seconds, _end, [number])
    timer.daemon = True
    timer.start()


def last_words(report: Callable[[int], None]) -> None:
    """Set a function that is called with the signal's number just before the process is ended."""
    global _last_words  # noqa: PLW0603 - a process ends once
    _last_words = report


def _end(number: int) -> None:
    _ending.acquire()
    try:
        end_all()
        end_descendants()
        if _last_words is not None:
            _last_words(number)
    finally:
        os._exit(128 + number)


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the frames of an exception and of its causes; the traceback stays.

    Prefect keeps exceptions until the interpreter exits, which is too late to free DuckDB's objects: it would
    report each of them as leaked.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        failure = waiting.pop()
        if failure is None or id(failure) in seen:
            continue
        seen.add(id(failure))
        traceback.clear_frames(failure.__traceback__)
        waiting += [failure.__cause__, failure.__context__]
        if isinstance(failure, BaseExceptionGroup):
            waiting += failure.exceptions


_COMMAND: ContextVar[bool] = ContextVar("command", default=False)


@contextmanager
def from_a_command() -> Iterator[None]:
    """Note that a command line starts the runs of this block."""
    token = _COMMAND.set(True)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def is_a_command() -> bool:
    """Whether a command line started what runs now."""
    return _COMMAND.get()
