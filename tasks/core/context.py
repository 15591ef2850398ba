"""Settings that the caller of a stage makes for its thread: memory, time limit, and the progress callback.

They affect speed, memory and messages, but never the bytes of an artifact. So they are not parameters of a
stage and not part of a fingerprint: the caller sets them with `with` blocks around the call.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from tokmill.tokenizer.core.stopping import raise_if_stopped

T = TypeVar("T")

_SHARE_OF_THE_RAM = 4
_CONTROL_GROUP = Path("/sys/fs/cgroup")

_MEMORY_BYTES: ContextVar[int | None] = ContextVar("memory_bytes", default=None)


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable while the `with` block runs, and restore it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def memory_limited_to(memory_bytes: int | None) -> AbstractContextManager[None]:
    """Set the memory budget of the stages that run in this `with` block; None for the default."""
    return context_value(_MEMORY_BYTES, memory_bytes)


def memory_budget() -> int:
    """Return how many bytes a stage may use for data that grows with its input.

    The default is a quarter of the RAM.
    """
    limit = _MEMORY_BYTES.get()
    return quarter_of_the_ram() if limit is None else limit


_TIME_LIMIT: ContextVar[float | None] = ContextVar("time_limit", default=None)


def time_limited_to(seconds: float | None) -> AbstractContextManager[None]:
    """Set the time limit of the stages that run in this `with` block; None for none."""
    return context_value(_TIME_LIMIT, seconds)


def time_limit() -> float | None:
    """Return how many seconds a stage may run; to wait for another process to run it does not count."""
    return _TIME_LIMIT.get()


def quarter_of_the_ram() -> int:
    """Return a quarter of the memory available to this process: the machine's, or its control group's."""
    return total_memory() // _SHARE_OF_THE_RAM


def total_memory() -> int:
    """Return the memory of the machine, or the limit of this process' control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (_CONTROL_GROUP / "memory.max").read_text("ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total


def usable_cores() -> int:
    """Return how many cores this process may use: by its affinity, and its control group's share of time."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # of other systems than Linux
        usable = os.cpu_count() or 1
    try:
        quota, period = (_CONTROL_GROUP / "cpu.max").read_text("ascii").split()
        return max(1, min(usable, -(-int(quota) // int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # without a limit, `max 100000`
        return usable


_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def remarks_reported_to(listener: Callable[[str], None] | None) -> AbstractContextManager[None]:
    """Call `listener` with the remarks of the stages that run in this `with` block; None for no callback."""
    return context_value(_LISTENER, listener)


def remark(text: str) -> None:
    """Report something about the work that is not a warning, such as the memory it needs."""
    if listener := _LISTENER.get():
        listener(text)


class StageProgress(NamedTuple):
    """How much of its work a stage has done.

    Attributes:
        done: amount done so far.
        total: amount in all.
        unit: unit of both, e.g. `merges`, or `bytes` of text.
        also: other amounts done so far, by unit, e.g. `documents`.
    """

    done: int
    total: int
    unit: str
    also: Mapping[str, int] = {}


ProgressCallback: TypeAlias = Callable[[StageProgress], None]

_WATCHER: ContextVar[ProgressCallback | None] = ContextVar("watcher", default=None)


def progress_reported_to(watcher: ProgressCallback | None) -> AbstractContextManager[None]:
    """Call `watcher` with the progress of the stages that run in this `with` block; None for no callback."""
    return context_value(_WATCHER, watcher)


def report_progress(done: int, total: int, unit: str, **also: int) -> None:
    """Report this stage's progress to the callback, if there is one; stop here if that was requested.

    Args:
        done: amount done so far.
        total: amount in all.
        unit: unit of both.
        **also: other amounts done so far, by unit.

    Raises:
        StopRequested: see `raise_if_stopped`.
    """
    progress_reporter()(done, total, unit, **also)


def progress_reporter() -> Callable[..., None]:
    """Return `report_progress` for the other threads of a stage, which know no callback."""
    watcher = _WATCHER.get()

    def report(done: int, total: int, unit: str, **also: int) -> None:
        raise_if_stopped()
        if watcher:
            watcher(StageProgress(done, total, unit, also))

    return report
