"""Progress reports of a running stage to a callback. They do not affect the stage's output."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

from tokmill.tasks.core.context import context_value


class StageProgress(NamedTuple):
    """How much of its work a stage has done.

    Attributes:
        done: amount done so far.
        total: amount in all.
        unit: unit of both, e.g. `merges`.
    """

    done: int
    total: int
    unit: str


ProgressCallback: TypeAlias = Callable[[StageProgress], None]

_WATCHER: ContextVar[ProgressCallback | None] = ContextVar("watcher", default=None)


def progress_reported_to(watcher: ProgressCallback | None) -> AbstractContextManager[None]:
    """Call `watcher` with the progress of the stages that run in this `with` block; None for no callback."""
    return context_value(_WATCHER, watcher)


def report_progress(done: int, total: int, unit: str) -> None:
    """Report this stage's progress to the callback, if there is one."""
    if watcher := _WATCHER.get():
        watcher(StageProgress(done, total, unit))
