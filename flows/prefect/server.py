"""Processes of Prefect's server: of `tokmill up`, and the embedded one of a run; Prefect is not imported."""

import atexit
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.settings import SERVER, may_have_a_server, prepare_terminal_run, protection
from tokmill.flows.process import Child, start_tethered, stop

_STOP_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 0.1
_EMBEDDED: Final = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",  # one application for the whole process
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # only tokmill reads it
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    # A block is registered when it is first saved, and the next permanent server of the home registers all.
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}
"""Nobody looks at an embedded server, or has automations there."""


def server_module(host: str, port: int, *options: str) -> list[str]:
    """Return the Python module, with its arguments, that serves Prefect's application on an address."""
    served = ["--factory", "tokmill.flows.prefect.app:create_app", "--lifespan", "on"]
    return ["uvicorn", *served, "--host", host, "--port", str(port), *options]


def wait_until_healthy(
    server: Child, url: str, seconds: float, stopped: threading.Event | None = None
) -> None:
    """Wait until a server answers at a URL, or `stopped` is set.

    Raises:
        ServeError: its process has ended, or it does not answer in `seconds`.
    """
    until, stopped = time.monotonic() + seconds, stopped or threading.Event()
    while not stopped.wait(_ASK_SECONDS) and not is_healthy(url):
        server.require_running()
        if time.monotonic() > until:
            raise ServeError(f"the Prefect server did not answer within {seconds:g} s; see {server.log}")


def is_healthy(url: str) -> bool:
    """Whether a Prefect server answers at a URL without TLS."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=1)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


class EmbeddedServer:
    """A server process on a free port of the loopback address, until this process exits.

    Prefect sends its last events at the exit, so that it is stopped after them.

    Attributes:
        url: URL of its API.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it, with settings of Prefect's that it does not find as this process does."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/api"
        self._module = server_module("127.0.0.1", port, "--log-level", "error")
        own = {**_EMBEDDED, **protection([f"127.0.0.1:{port}"])}
        self._environment = {**SERVER, **os.environ, **(settings or {}), **own}
        self._log = tempfile.NamedTemporaryFile(prefix="tokmill-server-")  # noqa: SIM115 - as long as the server
        self._lock, self._stopping = threading.Lock(), False
        self._child = self._started()
        atexit.register(self.stop)

    def _started(self) -> Child:
        process = start_tethered(self._module, self._environment, self._log.fileno())
        return Child("server", process, Path(self._log.name))

    def wait(self, home: Path, seconds: float, note: Callable[[str], None]) -> None:
        """Wait until it answers; from then on it is started again, at its address, whenever it ends.

        Clients try again for a minute, so a run goes on. One that does not answer in `seconds` is given up.

        Raises:
            ServeError: it did not answer; the message has its last output, and what may help.
        """
        try:
            wait_until_healthy(self._child, self.url, seconds)
        except BaseException as error:
            self.stop(patience=0)
            if not isinstance(error, ServeError):
                raise
            raise ServeError(
                f"run: Prefect's embedded server did not start: {error}\nits database is in {home}, where "
                f"{shutil.disk_usage(home).free:,} bytes are free: if that is little, set PREFECT_HOME to a "
                "folder on another disk; if the machine is busy, allow more time with "
                "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=600, or start a permanent server with "
                "`tokmill up` and set PREFECT_API_URL to it"
            ) from error
        threading.Thread(target=self._keep, args=(seconds, note), name="server", daemon=True).start()

    def _keep(self, seconds: float, note: Callable[[str], None]) -> None:
        while True:
            code = self._child.process.wait()
            with self._lock:
                if self._stopping:
                    return
                self._child = self._started()
            note(f"Prefect's embedded server has ended (exit code {code}); another one is started")
            try:
                wait_until_healthy(self._child, self.url, seconds)
            except ServeError:
                return

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """Stop the server; kill it after `patience` seconds."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        stop(self._child.process, patience, signal.SIGTERM)
        self._log.close()


_early: list[EmbeddedServer] = []


def start_early() -> None:
    """Start an embedded server for the next run of this process, while it imports what it needs.

    Not if a server may be configured, or if this process has settings of its own for Prefect.

    Raises:
        ServeError: Prefect's home cannot be created or written to.
    """
    prepare_terminal_run()
    if not _early and not may_have_a_server() and "prefect" not in sys.modules:
        _early.append(EmbeddedServer())


def started_early() -> EmbeddedServer | None:
    """Return the server of `start_early`, once, if there is one."""
    return _early.pop() if _early else None
