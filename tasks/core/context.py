"""What is said around a stage instead of to it: for the length of a block, in this thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value in this block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
