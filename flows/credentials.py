"""Secrets, which a profile names by their place: `env:VARIABLE`, or `block:NAME` of the Prefect server.

Credentials of object storage are put into the environment from there. A value that is read here is in no
message: errors say what is wrong with the place.
"""

import json
import os
import re
import threading
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.tasks.remote.services import reconnect

_OF_STORAGE = re.compile(r"(AWS|AZURE|FSSPEC|GCLOUD|GCSFS|GOOGLE|STORAGE)_[A-Z0-9_]+")
_SUPPLIED = set[tuple[int, str]]()  # process, and reference
_LOCK = threading.Lock()


class KeptError(Exception):
    """There is nothing at a place, or it cannot be read."""


def kept(reference: str) -> str:
    """Return the value of an environment variable or of a secret block; raises KeptError for none."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        if value := os.environ.get(name):
            return value
        fix = "set it for the process that executes the run"
        raise KeptError(f"environment variable {name} is not set; {fix}")
    try:
        value = str(secret_in(name))
    except ValueError as error:
        raise KeptError(f"the Prefect server has no secret block {name!r}") from error
    except Exception as error:  # the server does not answer
        raise KeptError(f"the secret block cannot be read: {type(error).__name__}") from error
    if not value:
        raise KeptError(f"the secret block {name!r} is empty")
    return value


def secret_in(name: str) -> Any:
    """Return the value of a server's secret block; raises ValueError, or any error of Prefect's."""
    from prefect.blocks.system import Secret  # noqa: PLC0415 - a second, and only for this

    return Secret.load(name).get()  # type: ignore[union-attr]


def supply_credentials(reference: str | None) -> None:
    """Put the values of a secret block into this process's environment, unless that was done before.

    The services' libraries look for them there; processes that this one starts inherit them. They are written
    nowhere: what travels, and what a record holds, is the block's name. Variables that are not of storage
    services are refused, so that whoever may write a block cannot change how programs run.
    """
    if reference is None:
        return
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
    except ValueError:
        problem = "which the Prefect server does not have; save a Secret block of this name"
    except Exception as error:  # its text may have the address of the server, with a password
        kind = type(error).__name__
        problem = f"which cannot be read from the Prefect server ({kind}); run again when it can"
    raise UsageError(f"{_said(reference)}, {problem}")


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
