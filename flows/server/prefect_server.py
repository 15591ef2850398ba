"""The Prefect server that a run reports to: the one that is configured, or one embedded for its length."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefect.client.base import ServerType, determine_server_type
from prefect.client.orchestration import get_client
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
    temporary_settings,
)

from tokmill.flows.errors import ServeError
from tokmill.flows.server.embedded import start_embedded

# Prefect's own words to the server that it embeds: no page, and one application for the whole process.
_EMBEDDED = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # it is heard by us alone
}


@contextmanager
def prefect_server(note: Callable[[str], None]) -> Iterator[None]:
    """Have a server to report to in this block: the one that is configured, or an embedded one.

    The embedded one ends with this process and not before, because Prefect sends its last events then.

    Args:
        note: called with one line of news about the start for the user.

    Raises:
        ServeError: the configured server does not answer; none is configured and none may be embedded; the
            embedded one does not come up.
    """
    kind = determine_server_type()
    if kind is ServerType.UNCONFIGURED:
        raise ServeError(
            "run: Prefect has no server: PREFECT_API_URL is not set and the embedded one is switched off; "
            "start one with `tokmill up` and set PREFECT_API_URL, or set "
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE=true"
        )
    if kind is ServerType.EPHEMERAL:
        with _embedded(note):
            yield
    else:
        _ask_configured()
        yield


def _ask_configured() -> None:
    with get_client(sync_client=True) as client:
        problem = client.api_healthcheck()
    if problem is not None:
        raise ServeError(
            f"run: no Prefect server answers at {PREFECT_API_URL.value()} ({problem}); start it, for example "
            "with `tokmill up`, or unset PREFECT_API_URL to use the embedded one"
        ) from problem


@contextmanager
def _embedded(note: Callable[[str], None]) -> Iterator[None]:
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    seconds = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
    server = start_embedded({**os.environ, **settings, **_EMBEDDED}, PREFECT_HOME.value(), seconds, note)
    atexit.register(server.stop)
    with temporary_settings({PREFECT_API_URL: server.url}):
        yield
