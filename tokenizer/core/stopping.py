"""Stop long work from another thread or from a signal handler.

A kernel that works on much data is called slice by slice, each well under a second, so that Python runs in
between: Ctrl-C and signal handlers take effect there, in the main thread. They do not reach other threads.
For these there is one flag in the process, which every loop over slices checks: after `request_stop` was
called, all counting, training and encoding raises `StopRequested` within a second or two, in
all threads, until `allow_work` is called.

Like KeyboardInterrupt, `StopRequested` is not an `Exception`, so that it is not mistaken for bad data.
"""

import threading
from collections.abc import Iterator

SLICE_BYTES = 1 << 22
"""Bytes of text per call of a kernel: far less than a second of work, far more than the cost of a call."""

_requested = threading.Event()


class StopRequested(BaseException):
    """Work was stopped on request."""


def request_stop() -> None:
    """Make all counting, training and encoding in this process stop soon; safe in a signal handler."""
    _requested.set()


def allow_work() -> None:
    """Withdraw the request, so that new work is not stopped."""
    _requested.clear()


def raise_if_stopped() -> None:
    """Raise if a stop was requested.

    Raises:
        StopRequested: it was.
    """
    if _requested.is_set():
        raise StopRequested("stopped on request; call `allow_work` before working on")


def slices(first: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each slice of the range from `first` to `stop`; check for a stop before each.

    Raises:
        StopRequested: it was requested.
    """
    for begin in range(first, stop, size):
        raise_if_stopped()
        yield begin, min(begin + size, stop)
