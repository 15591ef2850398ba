"""Finds the remaining processes of a command by a variable in their environment."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

_PACE = threading.Event()  # never set


def processes_with(variable: str, value: str) -> set[int]:
    """Return the ids of running processes with this variable, from /proc."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            with suppress(OSError):  # the process has just ended
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def left_after(seconds: float, variable: str, value: str) -> set[int]:
    """Wait until there are no such processes, or the time is over; return the remaining ids."""
    until = time.monotonic() + seconds
    while (left := processes_with(variable, value)) and time.monotonic() < until:
        _PACE.wait(0.05)
    return left


def end_all(left: set[int]) -> None:
    """Kill remaining processes, so that a failing test leaves none."""
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
