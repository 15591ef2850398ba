"""Stop long work from another thread or from a signal handler.

Kernels are called slice by slice, each well under a second, so that signal handlers take effect in the main
thread. For other threads there is one flag, which every loop over slices, batches, blocks or files checks:
after `request_stop` all work raises `StopRequested`, until `allow_work`. A time limit (`stop_after`) holds in
the thread that set it, and in those that `within_limit` or `limited_context` extend it to. Like
KeyboardInterrupt, `StopRequested` is not an `Exception`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SLICE_BYTES = 1 << 22
"""Bytes of text per call of a kernel: far less than a second of work, far more than the cost of a call."""

_requested = threading.Event()
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class StopRequested(BaseException):
    """Work was stopped on request."""


class TimeLimitReached(StopRequested):
    """Work took longer than it may (`stop_after`)."""


@contextmanager
def stop_after(seconds: float | None) -> Iterator[None]:
    """Make the work of this block stop once it has lasted for `seconds`; None for no limit."""
    before = _deadline.get()
    until = None if seconds is None else time.monotonic() + seconds
    limits = [each for each in (before, until) if each is not None]
    token = _deadline.set(min(limits, default=None))
    try:
        yield
    finally:
        _deadline.reset(token)


def limited_context() -> Context:
    """Return a context for one other thread, with the time limit of this one and nothing else."""
    context = Context()
    context.run(_deadline.set, _deadline.get())
    return context


def within_limit(work: Callable[P, T]) -> Callable[P, T]:
    """Return a function for any number of other threads that has the time limit of this one."""
    until = _deadline.get()

    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _deadline.set(until)
        try:
            return work(*args, **kwargs)
        finally:
            _deadline.reset(token)

    return limited


def request_stop() -> None:
    """Make all work of stages in this process stop soon; safe in a signal handler."""
    _requested.set()


def allow_work() -> None:
    """Withdraw the request, so that new work is not stopped."""
    _requested.clear()


def raise_if_stopped() -> None:
    """Raise if a stop was requested, or this work has reached its time limit."""
    if _requested.is_set():
        raise StopRequested("stopped on request; call `allow_work` before working on")
    until = _deadline.get()
    if until is not None and time.monotonic() > until:
        raise TimeLimitReached("the time limit is reached")


def slices(first: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each slice of the range from `first` to `stop`; check for a stop before each."""
    for begin in range(first, stop, size):
        raise_if_stopped()
        yield begin, min(begin + size, stop)
