"""Whether a command line started the runs of this process, or a program that calls us."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
