"""How far a stage is, told while it works to whoever watches. It changes nothing of what the stage makes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

from tokmill.tasks.core.context import context_value


class StageProgress(NamedTuple):
    """How much of its work a stage has done.

    Attributes:
        done: so much.
        total: of so much.
        unit: what is counted, e.g. `merges`.
    """

    done: int
    total: int
    unit: str


ProgressCallback: TypeAlias = Callable[[StageProgress], None]

_WATCHER: ContextVar[ProgressCallback | None] = ContextVar("watcher", default=None)


def progress_reported_to(watcher: ProgressCallback | None) -> AbstractContextManager[None]:
    """Have `watcher` called with what stages tell that run in this block; nobody if None."""
    return context_value(_WATCHER, watcher)


def report_progress(done: int, total: int, unit: str) -> None:
    """Tell whoever watches how far this stage is."""
    if watcher := _WATCHER.get():
        watcher(StageProgress(done, total, unit))
