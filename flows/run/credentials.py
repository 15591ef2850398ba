"""Credentials from a secret block of the Prefect server, for the services behind URLs.

A profile names the block (`execution.credentials = "block:NAME"`), and never a secret. Each process that does
work of the run reads the block when it first needs it, and puts its values into its own environment, where
the services' libraries look for them; processes that it starts inherit them. They are written nowhere: what
travels, and what a record holds, is the block's name.

The block's value is a JSON object of variables: {"AWS_ACCESS_KEY_ID": "…", "AWS_SECRET_ACCESS_KEY": "…"}.
It replaces variables that are set already. Only variables of storage services are taken, so that whoever may
write a block cannot change how programs run.
"""

import json
import os
import re
import threading
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.flows.kept import secret_in
from tokmill.tasks.remote import reconnect

_OF_STORAGE = re.compile(r"(AWS|AZURE|FSSPEC|GCLOUD|GCSFS|GOOGLE|STORAGE)_[A-Z0-9_]+")
_SUPPLIED = set[tuple[int, str]]()  # process, and reference
_LOCK = threading.Lock()


def supply(reference: str) -> None:
    """Put the values of a block into this process's environment, unless that was done before.

    Args:
        reference: `block:NAME`.

    Raises:
        UsageError: there is no such block, it is no object of such variables, or no server has it.
    """
    with _LOCK:
        done = (os.getpid(), reference)
        if done not in _SUPPLIED:
            os.environ.update(checked(reference, _value(reference)))
            reconnect()
            _SUPPLIED.add(done)


def _value(reference: str) -> Any:
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - a second, and only for this

    if not PREFECT_API_URL.value():
        raise UsageError(
            f"{_said(reference)}, and no Prefect server is configured; set PREFECT_API_URL, or leave the "
            "credentials to the environment"
        )
    try:
        return secret_in(reference.removeprefix("block:"))
    except ValueError as error:
        problem = "which the Prefect server does not have; save a Secret block of this name"
        raise UsageError(f"{_said(reference)}, {problem}") from error
    except Exception as error:  # its text may have the address of the server, with a password
        problem = (
            f"which cannot be read from the Prefect server ({type(error).__name__}); run again when it can"
        )
        raise UsageError(f"{_said(reference)}, {problem}") from None


def checked(reference: str, value: Any) -> dict[str, str]:
    """Return a block's variables; messages show names and no values."""
    wanted = 'it must be a JSON object such as {"AWS_ACCESS_KEY_ID": "…", "AWS_SECRET_ACCESS_KEY": "…"}'
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in (*found, *found.values())):
        raise UsageError(f"{_said(reference)}, whose value is of another form; {wanted}")
    for name in found:
        if not _OF_STORAGE.fullmatch(name):
            raise UsageError(f"{_said(reference)}, which has the variable {name!r}; {wanted}")
    return found


def _said(reference: str) -> str:
    return f"execution.credentials names the secret {reference}"
