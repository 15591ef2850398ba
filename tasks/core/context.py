"""Context variables: settings that reach a stage through its thread instead of through its parameters."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable while the `with` block runs, and restore it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
