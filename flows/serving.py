"""`tokmill up`: a Prefect server and a worker on this machine, with the deployment `build-corpus` registered.

Three child processes at most, each in a process group of its own so that Ctrl-C reaches this process alone,
which then stops the worker (and with it what the worker runs) before the server, waits for both, and kills
what does not go. The server keeps its history in Prefect's usual home (`PREFECT_HOME`); artifacts go to the
store. Nothing listens on any address but the one that is asked for, 127.0.0.1 unless told otherwise.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flows.errors import ServeError
from flows.settings import PRIVATE

WORK_POOL = "tokmill"
DEPLOYMENT = "build-corpus"
NIGHTLY = "0 3 * * *"
SERVER_START_SECONDS = 120
STOP_SECONDS = 30

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
    url = f"http://{host}:{port}"
    environment = {**os.environ, **_settings(url), "TOKMILL_STORE": str(store.absolute())}
    with _interruptible() as stopped, ExitStack() as children:
        announce("starting the Prefect server …")
        server = children.enter_context(
            _child("server", ["server", "start", *_address(host, port)], environment)
        )
        _wait_until_healthy(server, f"{url}/api/health", stopped)
        if stopped.is_set():
            return
        register(url, store)
        worker = children.enter_context(_child("worker", ["worker", "start", *_pool()], environment))
        announce(f"up: {url}/deployments · deployment {DEPLOYMENT} · store {store} · Ctrl-C stops it")
        _wait_for_end({"server": server, "worker": worker}, stopped)
        announce("stopping …")


def register(url: str, store: Path) -> None:
    """Register the work pool and the deployment at the Prefect server `url`; doing it again changes nothing.

    The schedule is registered paused: it is there to be switched on.
    """
    environment = {**os.environ, **_settings(url), "TOKMILL_STORE": str(store.absolute())}
    _prefect(["work-pool", "create", WORK_POOL, "--type", "process", "--overwrite"], environment)
    done = subprocess.run(
        [sys.executable, "-m", "flows.deployment"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServeError(
            f"the deployment {DEPLOYMENT!r} could not be registered at {url}: {done.stderr.strip()}"
        )


def _settings(url: str) -> dict[str, str]:
    """Prefect's settings for every child: this server, no telemetry, a page that calls the right port."""
    return {
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_SERVER_UI_API_URL": f"{url}/api",
        **PRIVATE,
    }


def _address(host: str, port: int) -> list[str]:
    return ["--host", host, "--port", str(port)]


def _pool() -> list[str]:
    return ["--pool", WORK_POOL, "--type", "process"]


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServeError(
                f"up: cannot listen on {host}:{port} ({error.strerror}); stop what uses it or choose --port"
            ) from error


def _prefect(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServeError(f"prefect {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")


@contextmanager
def _child(
    name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `prefect <arguments>` in a process group of its own; stop the whole group at the end."""
    command = [sys.executable, "-m", "prefect", *arguments]
    child = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Ask once, then end the group: a worker may outlive its first signal, so this waits and looks."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event for the length of the block."""
    stopped = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_healthy(server: subprocess.Popen[bytes], health: str, stopped: threading.Event) -> None:
    import httpx  # noqa: PLC0415 - comes with Prefect; not needed by any other command

    for _ in range(SERVER_START_SECONDS * 4):
        if stopped.wait(0.25):
            return
        if server.poll() is not None:
            raise ServeError(f"the Prefect server ended with exit code {server.returncode} before it was up")
        try:
            if httpx.get(health, timeout=1).is_success:
                return
        except httpx.HTTPError:
            continue
    raise ServeError(f"the Prefect server was not up after {SERVER_START_SECONDS} s")


def _wait_for_end(children: Mapping[str, subprocess.Popen[bytes]], stopped: threading.Event) -> None:
    while not stopped.wait(0.5):
        for name, child in children.items():
            if child.poll() is not None:
                raise ServeError(f"the {name} ended with exit code {child.returncode}")
