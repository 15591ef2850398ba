"""Prefect's application with access control, for `tokmill up` and the embedded server.

Started by `uvicorn --factory tokmill.flows.server.app:create_app`; configured by the environment variable
`HOSTS`.
"""

import gc
import os
import threading
from collections.abc import Sequence

from tokmill.flows.server.askers import Askers
from tokmill.flows.server.guard import Application, Guard, origins
from tokmill.flows.server.pages import Pages

HOSTS = "TOKMILL_SERVER_HOSTS"  # names of the server with ports, separated by commas


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
    collect_elsewhere()
    # Requests of the server to itself (automations) go to Prefect's application and bypass the guard.
    pages = Pages(Askers(application), os.environ.get("TOKMILL_STORE"))
    return Guard(pages, os.environ.get(HOSTS, "").split(","))


_PAUSE_SECONDS = 0.5


def collect_elsewhere() -> None:
    """From now on, collect this process's garbage in a thread; what there is by now stays."""
    gc.disable()
    gc.freeze()  # the modules: they are never garbage, and need not be looked through
    threading.Thread(target=_collect_for_ever, name="collecting", daemon=True).start()


def _collect_for_ever() -> None:
    never = threading.Event()
    while not never.wait(_PAUSE_SECONDS):
        due = _oldest_due()
        if due is not None:
            gc.collect(due)


def _oldest_due() -> int | None:
    """Return the oldest generation that Python would collect by now; None if it is none."""
    counts, thresholds = gc.get_count(), gc.get_threshold()
    return max((number for number in range(3) if counts[number] > thresholds[number] > 0), default=None)
