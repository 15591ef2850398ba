"""Prefect's application as `tokmill up` and the embedded server run it: guarded, and with its loops watched.

`uvicorn --factory flows.server.app:create_app` is how it is started; the environment says the rest (`HOSTS`,
`FAULTS`).
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tokmill.flows.server.guard import Application, Guard, origins
from tokmill.flows.server.loops import Loops, write_faults

HOSTS = "TOKMILL_SERVER_HOSTS"  # the server's own names, with ports, apart by commas
FAULTS = "TOKMILL_SERVER_FAULTS"  # the file that takes what goes wrong in the server; none if not set


def protection(names: Sequence[str]) -> dict[str, str]:
    """Return the environment of a server that is called `names`, and of its clients.

    By Prefect's defaults any web page reads the answers, and changes what it likes without a token.
    """
    return {
        HOSTS: ",".join(names),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins(names)),
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def create_app() -> Application:
    """Return the application that answers the names in `HOSTS` and nobody else."""
    from prefect.server.api.server import create_app as prefect_app  # noqa: PLC0415 - takes seconds

    application: Application = prefect_app(final=True)
    faults = os.environ.get(FAULTS)
    if faults:
        write_faults(Path(faults))
    # Around and not inside: what the server asks itself, for an automation, goes to Prefect's application.
    return Guard(Loops(application), os.environ.get(HOSTS, "").split(","))
