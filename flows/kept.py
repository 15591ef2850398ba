"""Reads what a profile names by where it is kept: `env:VARIABLE`, or `block:NAME` of the Prefect server.

A value that is read here is in no message: errors say what is wrong with the place.
"""

import os


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


def _of_block(name: str) -> str:
    """Return the value of a secret block of the Prefect server."""
    from prefect.blocks.system import Secret  # noqa: PLC0415 - a second, and only for this

    try:
        value = Secret.load(name).get()  # type: ignore[union-attr]
    except ValueError as error:
        raise KeptError(f"the Prefect server has no secret block {name!r}") from error
    except Exception as error:  # the server does not answer
        raise KeptError(f"the secret block cannot be read: {type(error).__name__}", passing=True) from error
    return str(value)
