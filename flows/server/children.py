"""Starts child processes that never outlive this process.

Each child has its own process group. So Ctrl-C in a terminal, or a signal to this process's group, does not
reach the children, and this process stops them in its own order. If it is killed and cannot stop them, the
end of a pipe ends them (`flows.server.tethered`).
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tokmill.flows.errors import ServeError
from tokmill.flows.server import tethered

STOP_SECONDS = 30
_LAST_LINES = 15
_REAP_TIMES, _REAP_SECONDS = 50, 0.02
_ALIVE: dict[subprocess.Popen[bytes], int] = {}  # with this process's end of the pipe


@dataclass(frozen=True)
class Child:
    """A running Python module and its log file."""

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
def child(name: str, module: Sequence[str], environment: Mapping[str, str], logs: Path) -> Iterator[Child]:
    """Run a Python module with its arguments during the block, then stop its process group."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.log"
    with log.open("wb") as file:
        process = start_tethered(module, environment, file)
    try:
        yield Child(name, process, log)
    finally:
        stop(process)


def start_tethered(
    module: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start a Python module, in a process group of its own, that ends when this process does.

    Args:
        module: its name and its arguments.
        environment: the child's environment variables.
        output: receives standard output and standard error; a file, or `subprocess.PIPE`.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", tethered.__file__, str(reading), *module],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[reading],
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    _ALIVE[process] = writing
    return process


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT, SIGTERM and SIGHUP into an event during the block."""
    stopped = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(
    process: subprocess.Popen[bytes], patience: float = STOP_SECONDS, by: signal.Signals = signal.SIGINT
) -> None:
    """Signal a child, wait, then kill its group: it may ignore the signal, or leave children."""
    if process.poll() is None:
        process.send_signal(by)
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _end(process)


def end_all() -> None:
    """Kill every remaining child with its process group."""
    for process in list(_ALIVE):
        _end(process)


def end_descendants() -> None:
    """Kill every other process that this one started, and those that they started; wait for the former.

    Prefect's worker counts their group as alive as long as one of them has not been waited for. Without
    `/proc`, only the processes of `multiprocessing` are known.
    """
    for process in multiprocessing.active_children():
        process.kill()
    found = _descendants(os.getpid())
    for number in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    for _ in range(_REAP_TIMES):
        found = [number for number in found if _is_unreaped(number)]
        if not found:
            return
        time.sleep(_REAP_SECONDS)


def _is_unreaped(number: int) -> bool:
    """Wait for a killed child, without blocking; False if it is gone, or a child of another process."""
    try:
        return os.waitpid(number, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _descendants(number: int) -> list[int]:
    """Return the ids of a process's children, of their children and so on."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            parent = int(status.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    kept = {process.pid for process in _ALIVE}
    found = [one for one in children.get(number, []) if one not in kept]
    for one in found:  # grows while it is read
        found.extend(children.get(one, []))
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    writing = _ALIVE.pop(process, None)
    if writing is not None:
        os.close(writing)
