"""This process: who called it, that it is gone within seconds after a signal, and children that die with it.

A signal unwinds the main thread, and a timer ends the process with all that it started four seconds later;
that is safe at any moment, because an artifact is published whole or not at all. A child of `start_tethered`
has a process group of its own; this process stops it, or the end of a pipe does (`flows.tether`).
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from tokmill.flows import tether
from tokmill.flows.errors import ServeError

SECONDS = 4.0
STOP_SECONDS = 30
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_LINES = 20
_REAP_TIMES, _REAP_SECONDS = 50, 0.02

_ending = threading.Lock()
_last_words: Callable[[int], None] | None = None
_children: dict[subprocess.Popen[bytes], int] = {}  # with this process's end of the pipe
_COMMAND: ContextVar[bool] = ContextVar("command", default=False)


def end_soon(number: int) -> None:
    """End this process after some seconds, because of a signal; the earliest of several calls decides."""
    timer = threading.Timer(SECONDS, _exit, [number])
    timer.daemon = True
    timer.start()


def last_words(report: Callable[[int], None]) -> None:
    """Set a function that is called with the signal's number just before the process is ended."""
    global _last_words  # noqa: PLW0603 - a process ends once
    _last_words = report


def _exit(number: int) -> None:
    _ending.acquire()
    try:
        for process in list(_children):
            _kill(process)
        end_descendants()
        if _last_words is not None:
            _last_words(number)
    finally:
        os._exit(128 + number)


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the frames of an exception and of its causes; the traceback stays.

    Prefect keeps exceptions until the interpreter exits, which is too late to free DuckDB's objects: it would
    report each of them as leaked.
    """
    failures: list[BaseException] = [error]
    for failure in failures:  # grows while it is read
        traceback.clear_frames(failure.__traceback__)
        parts = failure.exceptions if isinstance(failure, BaseExceptionGroup) else ()
        causes = [failure.__cause__, failure.__context__, *parts]
        failures += [each for each in causes if each is not None and all(each is not one for one in failures)]


@contextmanager
def from_a_command() -> Iterator[None]:
    """Note that a command line starts the runs of this block."""
    token = _COMMAND.set(True)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def is_a_command() -> bool:
    """Whether a command line started what runs now."""
    return _COMMAND.get()


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP in this block; one that is ignored, as under nohup, stays ignored."""
    before = {}
    if threading.current_thread() is threading.main_thread():  # only this thread receives signals
        before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT, SIGTERM and SIGHUP into an event during the block."""
    stopped = threading.Event()
    with handling(lambda *_: stopped.set()):
        yield stopped


@dataclass(frozen=True)
class Child:
    """A running Python module and its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def require_running(self) -> None:
        """Raise ServeError, with the end of its log but for tracebacks' indented lines, if it has ended."""
        if self.process.poll() is None:
            return
        lines = self.log.read_text("utf-8", "replace").splitlines()
        last = "\n".join([line for line in lines if line.strip() and line[0] != " "][-_LAST_LINES:])
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
    module: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int, *inherited: int
) -> subprocess.Popen[bytes]:
    """Start a Python module, in a process group of its own, that ends when this process does.

    It inherits these open descriptors.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", tether.__file__, str(reading), *module],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[reading, *inherited],
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    _children[process] = writing
    return process


def stop(
    process: subprocess.Popen[bytes], patience: float = STOP_SECONDS, by: signal.Signals = signal.SIGINT
) -> None:
    """Signal a child, wait, then kill its group: it may ignore the signal, or leave children."""
    if process.poll() is None:
        process.send_signal(by)
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    writing = _children.pop(process, None)
    if writing is not None:
        os.close(writing)


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
    kept = {process.pid for process in _children}
    found = [one for one in children.get(number, []) if one not in kept]
    for one in found:  # grows while it is read
        found.extend(children.get(one, []))
    return found
