"""Report compilations and their times, to a callback and to the log.

The beginning of the first compilation is a warning in the log, because a person may be waiting, and so is
from time to time how many kernels are compiled; the rest is information.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compilation:
    """The compilation, or the reading, of one kernel.

    Attributes:
        kernel: module and name.
        cached: whether the machine code was read instead of compiled.
        seconds: time that it took; None while it is being compiled.
    """

    kernel: str
    cached: bool
    seconds: float | None


Report = Callable[[Compilation], None]

_reports: list[Report] = []
_SIGN_OF_LIFE_SECONDS = 10.0


_times: list[float] = []
"""When compiling began, and when each kernel was done; empty until a person may be waiting."""


@contextmanager
def announcing(name: str, dispatcher: Any, folder: Path) -> Iterator[None]:
    """Report when numba begins to compile a kernel, which it does only if the cache does not have it."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, started: Any) -> None:
            if started.data["dispatcher"] is dispatcher:
                _announce_once(folder.parent)
                tell(Compilation(name, cached=False, seconds=None))

        def on_end(self, ended: Any) -> None:
            """Do nothing: the compiling code reports the end, with the time."""

    with event.install_listener("numba:compile", Listener()):
        yield


@functools.cache
def _announce_once(folder: Path) -> None:
    if not _reports:
        _times.append(time.monotonic())
        logger.warning(
            "compiling kernels for this machine: takes up to a few minutes, happens once (kept in %s)",
            folder,
        )


@contextmanager
def reporting(report: Report | None) -> Iterator[None]:
    """Report to a callback within the block."""
    if report is not None:
        _reports.append(report)
    try:
        yield
    finally:
        if report is not None:
            _reports.remove(report)


def tell(done: Compilation) -> None:
    """Log a compilation, and report it to the callbacks."""
    if done.seconds is None:
        logger.info("compiling %s", done.kernel)
    else:
        logger.info("%s %s in %.2f s", "read" if done.cached else "compiled", done.kernel, done.seconds)
        if not done.cached and _times:
            _count()
    for report in _reports:
        report(done)


def _count() -> None:
    """Count a compiled kernel, and log the number from time to time."""
    began, before, now = _times[0], _times[-1], time.monotonic()
    _times.append(now)
    if (now - began) // _SIGN_OF_LIFE_SECONDS > (before - began) // _SIGN_OF_LIFE_SECONDS:
        logger.warning("compiling kernels: %d so far, in %.0f s", len(_times) - 1, now - began)
