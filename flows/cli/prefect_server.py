"""The Prefect server that a run reports to: one that is configured, or the embedded one.

The embedded one is kept out of reach of Ctrl-C. A terminal sends that signal to every process in the
foreground; a server that got it too would be gone while the run still has to tell it how it ended, and the
run would hang for a minute and more. So the server is started here, before the run, by a thread in which
the signal is blocked: what it starts inherits that. Prefect finds the server running, uses it, and stops it
when this process ends.
"""

import signal
import threading

from flows.errors import ServeError


def reach_prefect_server() -> None:
    """Make sure that there is a server to report to: start the embedded one, or ask the configured one.

    Raises:
        ServeError: the configured server does not answer, or none is configured and none may be embedded.
        Exception: whatever kept the embedded server from starting.
    """
    from prefect.client.base import ServerType, determine_server_type

    kind = determine_server_type()
    if kind is ServerType.UNCONFIGURED:
        raise ServeError(
            "run: Prefect has no server: PREFECT_API_URL is not set and the embedded one is switched off; "
            "start one with `tokmill up` and set PREFECT_API_URL, or set "
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE=true"
        )
    if kind is ServerType.EPHEMERAL:
        _start_embedded()
    else:
        _ask_configured()


def _ask_configured() -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL

    with get_client(sync_client=True) as client:
        problem = client.api_healthcheck()
    if problem is not None:
        raise ServeError(
            f"run: no Prefect server answers at {PREFECT_API_URL.value()} ({problem}); start it, for example "
            "with `tokmill up`, or unset PREFECT_API_URL to use the embedded one"
        ) from problem


def _start_embedded() -> None:
    failures: list[Exception] = []
    starter = threading.Thread(target=_start_unreachable, args=(failures,), daemon=True)
    starter.start()
    starter.join()
    if failures:
        raise failures[0]


def _start_unreachable(failures: list[Exception]) -> None:
    from prefect.server.api.server import SubprocessASGIServer

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        SubprocessASGIServer().start()
    except Exception as error:
        failures.append(error)
