"""The embedded Prefect server of one command, which starts and stops it.

It is a child process (`flows.server.children`). Signals to the command's process group do not reach it, so a
run can still report its end, and it does not outlive a command that was killed. Its output is kept in memory,
because the disk may be full. If it does not start, it is started once more, and then the command fails with
the server's last lines. If it is killed while the command works, another one takes its place.
"""

import io
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from tokmill.flows.errors import ServeError
from tokmill.flows.server.app import protection
from tokmill.flows.server.children import start_tethered, stop

_LAST_LINES = 20
_STOP_SECONDS = 5.0
_ASK_SECONDS = 0.1
_LITTLE_ROOM_BYTES = 32 << 20
_FULL_DISK = ("No space left on device", "database or disk is full", "disk I/O error")


class EmbeddedServer:
    """A server process on a free port of the loopback address.

    Attributes:
        url: URL of its API.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start the process; `wait` checks whether it answers."""
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}/api"
        served = ["--factory", "tokmill.flows.server.app:create_app", "--lifespan", "on"]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        self._module = ["uvicorn", *served, *where]
        self._environment = {**environment, **protection([f"127.0.0.1:{port}"])}
        self._output: deque[str] = deque(maxlen=_LAST_LINES)
        self._lock, self._stopping = threading.Lock(), False
        self._start()

    def _start(self) -> None:
        self._process = start_tethered(self._module, self._environment, subprocess.PIPE)
        self._listener = threading.Thread(target=self._listen, name="embedded server", daemon=True)
        self._listener.start()

    def keep(self, seconds: float, note: Callable[[str], None]) -> None:
        """Start the server again, at the same address, whenever it ends before `stop`.

        Clients try again for a minute, so a run goes on. One that does not answer is given up.

        Args:
            seconds: time limit for a start.
            note: called with one line when it is started again.
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
        import httpx  # noqa: PLC0415 - comes with Prefect, which takes a second to import

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
        self._listener.join()

    def last_output(self) -> str:
        """Return the last lines of output of a stopped server, without the indented lines of tracebacks."""
        return "\n".join(line for line in self._output if line and not line.startswith(" "))

    def _listen(self) -> None:
        with self._process.stdout or io.BytesIO() as lines:
            for line in lines:
                self._output.append(line.decode("utf-8", "replace").rstrip())


def start_embedded(
    environment: Mapping[str, str], home: Path, seconds: float, note: Callable[[str], None]
) -> EmbeddedServer:
    """Start a server and wait until it answers; try again once if it does not.

    Args:
        environment: the environment variables of the server, with Prefect's settings.
        home: the folder of Prefect's database.
        seconds: time limit for the start.
        note: called with one line if the server is started a second time.

    Raises:
        ServeError: the server did not answer; the message has the cause and the fix.
    """
    server, problem = _attempt(environment, seconds)
    if problem:
        note(f"Prefect's embedded server did not start ({problem}); trying once more")
        server, problem = _attempt(environment, seconds)
    if problem:
        words = server.last_output()
        output = f"; its last output:\n{words}\n" if words else ", without output; "
        raise ServeError(
            f"run: Prefect's embedded server did not start, twice ({problem}){output}{_advice(words, home)}"
        )
    server.keep(seconds, note)
    return server


def _attempt(environment: Mapping[str, str], seconds: float) -> tuple[EmbeddedServer, str]:
    """Start a server; return it and its problem, with which it is stopped again, or ""."""
    server = EmbeddedServer(environment)
    problem = "interrupted"
    try:
        problem = server.wait(seconds)
    finally:
        if problem:
            server.stop(patience=0)
    return server, problem


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
