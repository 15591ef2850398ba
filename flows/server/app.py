"""Prefect's application with access control and monitoring, for `tokmill up` and the embedded server.

Started by `uvicorn --factory tokmill.flows.server.app:create_app`; configured by the environment variables
`HOSTS` and `FAULTS`.
"""

import gc
import os
from collections.abc import Sequence
from pathlib import Path

from tokmill.flows.server.askers import Askers
from tokmill.flows.server.collecting import collect_elsewhere
from tokmill.flows.server.guard import Application, Guard, origins
from tokmill.flows.server.loops import Loops, write_faults
from tokmill.flows.server.pages import Pages

HOSTS = "TOKMILL_SERVER_HOSTS"  # names of the server with ports, separated by commas
FAULTS = "TOKMILL_SERVER_FAULTS"  # the file for the server's errors; none if not set


def protection(names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a server with these names, and of its clients.

    With Prefect's defaults, any web page can read the server's answers and make changes without a token.
    """
    return {
        HOSTS: ",".join(names),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins(names)),
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def create_app() -> Application:
    """Return the application, which answers only requests to the names in `HOSTS`."""
    gc.disable()  # an eighth of the start; `collect_elsewhere` takes over
    from prefect.server.api.server import create_app as prefect_app  # noqa: PLC0415 - takes seconds

    application: Application = prefect_app(final=True)
    faults = os.environ.get(FAULTS)
    if faults:
        write_faults(Path(faults))
    collect_elsewhere()
    # Requests of the server to itself (automations) go to Prefect's application and bypass the guard.
    pages = Pages(Loops(Askers(application)), os.environ.get("TOKMILL_STORE"))
    return Guard(pages, os.environ.get(HOSTS, "").split(","))
