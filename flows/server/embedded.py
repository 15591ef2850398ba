"""The embedded Prefect server of one command: started for it, private to it, and ended with it.

It is a child like any other (`flows.server.children`): out of reach of the signals that a terminal or `kill`
sends to the command's group, because a run has to tell it how it ended, and tethered, so that it does not
outlive a command that was killed. What it says is kept in memory, since it may be the full disk that it
complains of; where it does not come up, its last lines are the cause that is told, and it is started anew
once.
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
        url: of its API.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start it; whether it comes up is for `wait`."""
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}/api"
        served = ["--factory", "tokmill.flows.server.app:create_app", "--lifespan", "on"]
        where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        guarded = {**environment, **protection([f"127.0.0.1:{port}"])}
        self._process = start_tethered(["uvicorn", *served, *where], guarded, subprocess.PIPE)
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._listener = threading.Thread(target=self._listen, name="embedded server", daemon=True)
        self._listener.start()

    def wait(self, seconds: float) -> str:
        """Wait until it answers; return why it does not, or nothing if it does."""
        import httpx  # noqa: PLC0415 - comes with Prefect, which takes a second to import

        until = time.monotonic() + seconds
        # without certificates, which take 40 ms to load and which no one presents here
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
        """End it; where it takes longer than `patience`, at once."""
        stop(self._process, patience, signal.SIGTERM)
        self._listener.join()

    def last_words(self) -> str:
        """The end of what it said, once it was stopped; of a traceback, what is not indented."""
        return "\n".join(line for line in self._said if line and not line.startswith(" "))

    def _listen(self) -> None:
        with self._process.stdout or io.BytesIO() as lines:
            for line in lines:
                self._said.append(line.decode("utf-8", "replace").rstrip())


def start_embedded(
    environment: Mapping[str, str], home: Path, seconds: float, note: Callable[[str], None]
) -> EmbeddedServer:
    """Start a server and wait until it answers; a second one if the first does not come up.

    Args:
        environment: Prefect's settings among it.
        home: the folder of Prefect's database.
        seconds: how long a server may take.
        note: called with one line if a second server is started.

    Raises:
        ServeError: neither came up; says why, and what helps.
    """
    server, problem = _attempt(environment, seconds)
    if problem:
        note(f"Prefect's embedded server did not come up ({problem}); it is started once more")
        server, problem = _attempt(environment, seconds)
    if problem:
        words = server.last_words()
        said = f"; the last that it said:\n{words}\n" if words else ", and it said nothing; "
        raise ServeError(
            f"run: Prefect's embedded server did not come up, twice ({problem}){said}{_advice(words, home)}"
        )
    return server


def _attempt(environment: Mapping[str, str], seconds: float) -> tuple[EmbeddedServer, str]:
    """Start a server; gives it with why it did not come up, in which case it is stopped again."""
    server = EmbeddedServer(environment)
    problem = "interrupted"
    try:
        problem = server.wait(seconds)
    finally:
        if problem:
            server.stop(patience=0)
    return server, problem


def _advice(words: str, home: Path) -> str:
    """What helps: room on the disk where there is none, else time or a server that stays."""
    free = shutil.disk_usage(home).free
    if free < _LITTLE_ROOM_BYTES or any(sign in words for sign in _FULL_DISK):
        return (
            f"its database is in {home}, where {free:,} bytes are free; make room there, or set PREFECT_HOME "
            "to a folder on another disk"
        )
    return (
        "on a busy machine run again later, give it more time with "
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=600, or leave a server running with `tokmill up` "
        "and set PREFECT_API_URL to it"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
