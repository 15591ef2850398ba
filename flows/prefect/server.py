"""Processes of Prefect's server: of `tokmill up`, and the embedded one of a run; Prefect is not imported."""

import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.settings import protection
from tokmill.flows.process import Child, start_tethered, stop

_STOP_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 0.1


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
    """A server process on a free port of the loopback address.

    Attributes:
        url: URL of its API.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/api"
        self._module = server_module("127.0.0.1", port, "--log-level", "error")
        self._environment = {**environment, **protection([f"127.0.0.1:{port}"])}
        self._log = tempfile.NamedTemporaryFile(prefix="tokmill-server-")  # noqa: SIM115 - as long as the server
        self._lock, self._stopping = threading.Lock(), False
        self._child = self._started()

    def _started(self) -> Child:
        process = start_tethered(self._module, self._environment, self._log.fileno())
        return Child("server", process, Path(self._log.name))

    def wait(self, seconds: float) -> None:
        """Wait until it answers; raises ServeError if it does not."""
        wait_until_healthy(self._child, self.url, seconds)

    def keep(self, seconds: float, note: Callable[[str], None]) -> None:
        """Start the server again, at the same address, whenever it ends before `stop`.

        Clients try again for a minute, so a run goes on. One that does not answer in `seconds` is given up.
        """

        def keep() -> None:
            while True:
                code = self._child.process.wait()
                with self._lock:
                    if self._stopping:
                        return
                    self._child = self._started()
                note(f"Prefect's embedded server has ended (exit code {code}); another one is started")
                try:
                    self.wait(seconds)
                except ServeError:
                    return

        threading.Thread(target=keep, name="embedded server", daemon=True).start()

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """Stop the server; kill it after `patience` seconds."""
        with self._lock:
            self._stopping = True
        stop(self._child.process, patience, signal.SIGTERM)
        self._log.close()


def start_embedded(
    environment: Mapping[str, str], home: Path, seconds: float, note: Callable[[str], None]
) -> EmbeddedServer:
    """Start a server and wait until it answers.

    Raises:
        ServeError: the server did not answer; the message has its last output, and what may help.
    """
    server = EmbeddedServer(environment)
    try:
        server.wait(seconds)
    except BaseException as error:
        server.stop(patience=0)
        if not isinstance(error, ServeError):
            raise
        raise ServeError(
            f"run: Prefect's embedded server did not start: {error}\nits database is in {home}, where "
            f"{shutil.disk_usage(home).free:,} bytes are free: if that is little, set PREFECT_HOME to a "
            "folder on another disk; if the machine is busy, allow more time with "
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=600, or start a permanent server with "
            "`tokmill up` and set PREFECT_API_URL to it"
        ) from error
    server.keep(seconds, note)
    return server
