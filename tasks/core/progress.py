"""How far a stage is, told while it works to whoever watches. It changes nothing of what the stage makes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

from tokmill.tasks.core.context import holding


class Advance(NamedTuple):
    """How much of its work a stage has done.

    Attributes:
        done: so much.
        total: of so much.
        unit: what is counted, e.g. `merges`.
    """

    done: int
    total: int
    unit: str


Watcher: TypeAlias = Callable[[Advance], None]

_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def watched_by(watcher: Watcher | None) -> AbstractContextManager[None]:
    """Have `watcher` called with what stages tell that run in this block; nobody if None."""
    return holding(_WATCHER, watcher)


def tell_advance(done: int, total: int, unit: str) -> None:
    """Tell whoever watches how far this stage is."""
    if watcher := _WATCHER.get():
        watcher(Advance(done, total, unit))
