"""Stopping work that takes long, from another thread or from a signal handler.

A kernel that works on much data is called a slice at a time, each well under a second, so that Python runs in
between: Ctrl-C and signal handlers take effect there, in the main thread. Other threads hear of neither.
For them there is one flag for the process, at which every loop over slices looks: once `request_stop` was
called, whatever is being counted, trained or encoded raises `StopRequested` within a second or two, in
whichever threads it goes on, until `allow_work` is called.

`StopRequested` is no `Exception`, like KeyboardInterrupt, so that nothing takes it for a verdict about data.
"""

import threading
from collections.abc import Iterator

SLICE_BYTES = 1 << 22
"""Text that one call of a kernel works on: far below a second, far above what a call costs."""

_requested = threading.Event()


class StopRequested(BaseException):
    """Work was stopped on request."""


def request_stop() -> None:
    """Have all that counts, trains or encodes in this process stop soon; safe in a signal handler."""
    _requested.set()


def allow_work() -> None:
    """Take a request back: what begins now goes on to its end."""
    _requested.clear()


def heed_stop() -> None:
    """Return at once, unless a stop was requested.

    Raises:
        StopRequested: it was.
    """
    if _requested.is_set():
        raise StopRequested("stopped on request; call `allow_work` before working on")


def slices(first: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where each slice of what goes from `first` to `stop` begins and ends; heed a stop before each.

    Raises:
        StopRequested: it was requested.
    """
    for begin in range(first, stop, size):
        heed_stop()
        yield begin, min(begin + size, stop)
