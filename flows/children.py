"""Child processes that are ended for certain: each in a process group of its own, with a log file.

Ctrl-C in a terminal reaches this process alone, because the children's groups are not the terminal's; who
stops the children, and in which order, is then up to this process.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.errors import ServeError

STOP_SECONDS = 30
_LAST_LINES = 15


@dataclass(frozen=True)
class Child:
    """A running `prefect …` command and the file that it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def require_running(self) -> None:
        """Raise ServeError, with the end of its log, if the child has ended."""
        if self.process.poll() is None:
            return
        last = "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])
        code = self.process.returncode
        raise ServeError(
            f"the Prefect {self.name} ended with exit code {code}; {self.log} ends with:\n{last}"
        )


@contextmanager
def child(name: str, arguments: Sequence[str], environment: Mapping[str, str], logs: Path) -> Iterator[Child]:
    """Run `prefect <arguments>` for the length of the block and then stop its whole process group."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            prefect_command(arguments),
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield Child(name, process, log)
    finally:
        _stop(process)


def prefect_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of `prefect <arguments>` in this interpreter."""
    return [sys.executable, "-m", "prefect", *arguments]


@contextmanager
def interruptible() -> Iterator[threading.Event]:
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


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask once, wait, then end the group: a worker may outlive its first signal, and leave children."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
