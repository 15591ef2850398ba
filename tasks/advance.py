"""How far a stage is, told while it works to whoever watches. It changes nothing of what the stage makes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias


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


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Have `watcher` called with what stages tell that run in this block; nobody if None."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def tell_advance(done: int, total: int, unit: str) -> None:
    """Tell whoever watches how far this stage is."""
    if watcher := _WATCHER.get():
        watcher(Advance(done, total, unit))
