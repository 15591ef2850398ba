"""The Prefect server of a run: the configured one, or an embedded one."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from httpx import HTTPStatusError, codes
from prefect.client.base import ServerType, determine_server_type
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SyncClientContext
from prefect.exceptions import ObjectNotFound
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    PREFECT_HOME,
    PREFECT_SERVER_API_AUTH_STRING,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
    temporary_settings,
)

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.app import protection
from tokmill.flows.prefect.settings import SERVER
from tokmill.flows.process import start_tethered, stop

# Prefect's own settings for an embedded server: no UI, and one application for the whole process.
_EMBEDDED = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",  # only tokmill reads it
}
_CHECK = "check PREFECT_API_AUTH_STRING, which must be the server's PREFECT_SERVER_API_AUTH_STRING"
_SAME_VERSION = {PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
"""For a server whose version is known to fit: Prefect's other clients would ask for it again."""
_LAST_LINES = 20
_STOP_SECONDS = 5.0
_ASK_SECONDS = 0.1
_LITTLE_ROOM_BYTES = 32 << 20
_FULL_DISK = ("No space left on device", "database or disk is full", "disk I/O error")


@contextmanager
def prefect_server(note: Callable[[str], None]) -> Iterator[SyncPrefectClient]:
    """Provide a server in this block, the configured one or an embedded one; yield a client of it.

    The embedded one runs until this process exits, because Prefect sends its last events then.

    Raises:
        ServeError: the configured server does not answer; none is configured and an embedded one is not
            allowed; the embedded one does not start.
    """
    kind = determine_server_type()
    if kind is ServerType.UNCONFIGURED:
        raise ServeError(
            "run: Prefect has no server: PREFECT_API_URL is not set and the embedded one is switched off; "
            "start one with `tokmill up` and set PREFECT_API_URL, or set "
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE=true"
        )
    if kind is ServerType.EPHEMERAL:
        with _embedded(note), SyncClientContext.get_or_create() as context:
            yield context.client
    else:
        with _configured("run") as client:
            yield client


def require_configured(command: str) -> str:
    """Return the URL of the configured server, which answers.

    Raises:
        ServeError: none is configured, or it does not answer.
    """
    if determine_server_type() in {ServerType.UNCONFIGURED, ServerType.EPHEMERAL}:
        raise ServeError(
            f"{command}: no Prefect server is configured; set PREFECT_API_URL to the team's, e.g. "
            "http://prefect.example.org:4200/api, or use `tokmill up` for one on this machine"
        )
    with _configured(command):
        pass
    return str(PREFECT_API_URL.value())


def require_pool(name: str) -> None:
    """Refuse a work pool that the configured server does not have.

    Raises:
        ServeError: it has none of this name.
    """
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            raise ServeError(
                f"work: the server has no work pool {name!r}; register this folder with `tokmill server "
                "deploy` and the same --store, or name an existing pool with --pool"
            ) from None


def no_answer(api: str, problem: Exception) -> tuple[str, str]:
    """Return why a server does not answer as it should, and the fix."""
    code = problem.response.status_code if isinstance(problem, HTTPStatusError) else None
    if code in {codes.UNAUTHORIZED, codes.FORBIDDEN}:
        return f"not allowed: the Prefect server at {api} refuses these credentials", _CHECK
    if code == codes.NOT_FOUND:
        return f"what answers at {api} is not Prefect's API", "correct PREFECT_API_URL; it ends with /api"
    fix = "start it, for example with `tokmill up`, or unset PREFECT_API_URL to use the embedded one"
    return f"no Prefect server answers at {api} ({problem})", fix


@contextmanager
def _configured(command: str) -> Iterator[SyncPrefectClient]:
    """Open the client of this block, which Prefect's engine uses too: each one takes 20 ms to open."""
    with ExitStack() as opened:
        try:
            client = opened.enter_context(SyncClientContext.get_or_create()).client
            problem = client.api_healthcheck()
        except Exception as error:  # it asks for the server's version first
            problem = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if problem is not None:
            what, fix = no_answer(str(PREFECT_API_URL.value()), problem)
            raise ServeError(f"{command}: {what}; {fix}") from problem
        opened.enter_context(temporary_settings(_SAME_VERSION))
        yield client


@contextmanager
def _embedded(note: Callable[[str], None]) -> Iterator[None]:
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    seconds = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
    environment = {**SERVER, **os.environ, **settings, **_EMBEDDED}
    server = start_embedded(environment, PREFECT_HOME.value(), seconds, note)
    atexit.register(server.stop)
    own = {PREFECT_API_URL: server.url, PREFECT_API_AUTH_STRING: PREFECT_SERVER_API_AUTH_STRING.value()}
    with temporary_settings({**own, **_SAME_VERSION}):
        yield


class EmbeddedServer:
    """A server process on a free port of the loopback address.

    Attributes:
        url: URL of its API.
        last_output: its last lines, without the indented ones of tracebacks, once it is stopped.
    """

    last_output = ""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start the process; `wait` checks whether it answers."""
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}/api"
        served = ["--factory", "tokmill.flows.prefect.app:create_app", "--lifespan", "on"]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        self._module = ["uvicorn", *served, *where]
        self._environment = {**environment, **protection([f"127.0.0.1:{port}"])}
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lasts as long as the server
        self._lock, self._stopping = threading.Lock(), False
        self._start()

    def _start(self) -> None:
        self._process = start_tethered(self._module, self._environment, self._output)

    def keep(self, seconds: float, note: Callable[[str], None]) -> None:
        """Start the server again, at the same address, whenever it ends before `stop`.

        Clients try again for a minute, so a run goes on. One that does not answer in `seconds` is given up.
        """
        threading.Thread(target=self._keep, args=(seconds, note), name="embedded server", daemon=True).start()

    def _keep(self, seconds: float, note: Callable[[str], None]) -> None:
        problem = ""
        while not problem:
            code = self._process.wait()
            with self._lock:
                if self._stopping:
                    return
                self._start()
            note(f"Prefect's embedded server has ended (exit code {code}); another one is started")
            problem = self.wait(seconds)

    def wait(self, seconds: float) -> str:
        """Wait until the server answers; return the problem, or "" if it answers."""
        until = time.monotonic() + seconds
        # loading certificates takes 40 ms, and there is no TLS here
        with httpx.Client(timeout=1, verify=False) as client:  # noqa: S501 - a loopback address, without TLS
            while time.monotonic() < until:
                try:
                    if client.get(f"{self.url}/health").is_success:
                        return ""
                except httpx.HTTPError:
                    pass  # not yet
                try:
                    return f"it ended with exit code {self._process.wait(_ASK_SECONDS)}"
                except subprocess.TimeoutExpired:
                    continue
        return f"it did not answer within {seconds:g} s"

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """Stop the server; kill it after `patience` seconds."""
        with self._lock:
            self._stopping = True
        stop(self._process, patience, signal.SIGTERM)
        if not self._output.closed:
            self._output.seek(0)
            lines = self._output.read().decode("utf-8", "replace").splitlines()
            self.last_output = "\n".join(
                line.rstrip() for line in lines[-_LAST_LINES:] if line.strip() and not line.startswith(" ")
            )
            self._output.close()


def start_embedded(
    environment: Mapping[str, str], home: Path, seconds: float, note: Callable[[str], None]
) -> EmbeddedServer:
    """Start a server and wait until it answers.

    Raises:
        ServeError: the server did not answer; the message has the cause and the fix.
    """
    server, problem = EmbeddedServer(environment), "interrupted"
    try:
        problem = server.wait(seconds)
    finally:
        if problem:
            server.stop(patience=0)
    if problem:
        words = server.last_output
        output = f"; its last output:\n{words}\n" if words else ", without output; "
        raise ServeError(
            f"run: Prefect's embedded server did not start ({problem}){output}{_advice(words, home)}"
        )
    server.keep(seconds, note)
    return server


def _advice(words: str, home: Path) -> str:
    """Return the fix: free disk space if there is none, else more time or a permanent server."""
    free = shutil.disk_usage(home).free
    if free < _LITTLE_ROOM_BYTES or any(sign in words for sign in _FULL_DISK):
        return (
            f"its database is in {home}, where {free:,} bytes are free; make room there, or set PREFECT_HOME "
            "to a folder on another disk"
        )
    return (
        "if the machine is busy, run again later, allow more time with "
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=600, or start a permanent server with `tokmill up` "
        "and set PREFECT_API_URL to it"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
