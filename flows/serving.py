"""`tokmill up`: a Prefect server and a worker on this machine, with the deployment `build-corpus` registered.

When it is interrupted it stops the worker (and with it what the worker runs) before the server, and waits
for both. The server keeps its history in Prefect's usual home (`PREFECT_HOME`); artifacts go to the
store, and what server and worker log to `<store>/.up`. Nothing listens on any address but the one that is
asked for, 127.0.0.1 unless told otherwise.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from flows.children import Child, child, interruptible, prefect_command
from flows.errors import ServeError
from flows.settings import PRIVATE

WORK_POOL = "tokmill"
DEPLOYMENT = "build-corpus"
NIGHTLY = "0 3 * * *"
SERVER_START_SECONDS = 120

Announce = Callable[[str], None]


def up(store: Path, *, host: str = "127.0.0.1", port: int = 4200, announce: Announce = print) -> None:
    """Serve until interrupted.

    Args:
        store: the folder that runs keep their artifacts in unless they name another.
        host: address that the server listens on.
        port: TCP port of the server; must be free.
        announce: is told, a line at a time, what is up and where.

    Raises:
        ServeError: the port is taken, or the server, the worker or the registration failed.
    """
    _require_free(host, port)
    url, logs = f"http://{host}:{port}", store.absolute() / ".up"
    environment = _environment(url, store)
    with interruptible() as stopped, ExitStack() as children:
        announce("starting the Prefect server …")
        start = ["server", "start", "--host", host, "--port", str(port)]
        server = children.enter_context(child("server", start, environment, logs))
        _wait_until_healthy(server, f"{url}/api/health", stopped)
        if stopped.is_set():
            return
        register(url, store)
        work = ["worker", "start", "--pool", WORK_POOL, "--type", "process"]
        worker = children.enter_context(child("worker", work, environment, logs))
        announce(f"up: {url}/v2/deployments · deployment {DEPLOYMENT} · store {store} · Ctrl-C stops it")
        _wait_for_end([server, worker], stopped)
        announce("stopping …")


def register(url: str, store: Path) -> None:
    """Register the work pool and the deployment at the Prefect server `url`; doing it again changes nothing.

    The schedule is registered paused: it is there to be switched on.

    Raises:
        ServeError: the server refuses.
    """
    environment = _environment(url, store)
    pool = ["work-pool", "create", WORK_POOL, "--type", "process", "--overwrite"]
    _complete(f"the work pool {WORK_POOL!r}", prefect_command(pool), environment)
    deploy = [sys.executable, "-m", "flows.deployment"]
    _complete(f"the deployment {DEPLOYMENT!r}", deploy, environment)


def _environment(url: str, store: Path) -> dict[str, str]:
    """What every child sees: this server, a page that calls the right port, this store, no telemetry."""
    return {
        **os.environ,
        **PRIVATE,
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_SERVER_UI_API_URL": f"{url}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # A person who presses the button is waiting; Prefect's worker would look for work every ten seconds.
        "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "2"),
        "TOKMILL_STORE": str(store.absolute()),
    }


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or error
            raise ServeError(
                f"up: cannot listen on {host}:{port} ({reason}); stop what uses it or choose --port"
            ) from error


def _complete(what: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServeError(f"{what} could not be registered: {(done.stderr or done.stdout).strip()}")


def _wait_until_healthy(server: Child, health: str, stopped: threading.Event) -> None:
    import httpx  # noqa: PLC0415 - comes with Prefect, and no other command needs it

    for _ in range(SERVER_START_SECONDS * 4):
        if stopped.wait(0.25):
            return
        server.require_running()
        try:
            if httpx.get(health, timeout=1).is_success:
                return
        except httpx.HTTPError:
            continue
    raise ServeError(f"the Prefect server was not up after {SERVER_START_SECONDS} s; see {server.log}")


def _wait_for_end(children: Sequence[Child], stopped: threading.Event) -> None:
    while not stopped.wait(0.5):
        for running in children:
            running.require_running()
