"""Reads what a profile names by where it is kept: `env:VARIABLE`, or `block:NAME` of the Prefect server.

A value that is read here is in no message: errors say what is wrong with the place.
"""

import os
from typing import Any


class KeptError(Exception):
    """There is nothing at a place, or it cannot be read.

    Attributes:
        passing: whether another attempt may succeed.
    """

    def __init__(self, problem: str, *, passing: bool = False) -> None:
        super().__init__(problem)
        self.passing = passing


def kept(reference: str) -> str:
    """Return the value of an environment variable of this process, or of a secret block.

    Args:
        reference: `env:VARIABLE` or `block:NAME`.

    Raises:
        KeptError: there is none.
    """
    kind, _, name = reference.partition(":")
    value = os.environ.get(name, "") if kind == "env" else _of_block(name)
    if not value:
        fix = "set it for the process that executes the run"
        raise KeptError(f"environment variable {name} is not set; {fix}")
    return value


def secret_in(name: str) -> Any:
    """Return the value of a secret block of the Prefect server.

    Raises:
        ValueError: the server has no such block.
        Exception: any of Prefect's, if the server does not answer; its text may have the server's address.
    """
    from prefect.blocks.system import Secret  # noqa: PLC0415 - a second, and only for this

    return Secret.load(name).get()  # type: ignore[union-attr]


def _of_block(name: str) -> str:
    try:
        value = secret_in(name)
    except ValueError as error:
        raise KeptError(f"the Prefect server has no secret block {name!r}") from error
    except Exception as error:  # the server does not answer
        raise KeptError(f"the secret block cannot be read: {type(error).__name__}", passing=True) from error
    return str(value)
