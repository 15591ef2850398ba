"""What is left of a command: the processes that it started, known by a variable of their environment."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

_PACE = threading.Event()  # never set


def processes_with(variable: str, value: str) -> set[int]:
    """Ids of the processes that are alive and have this variable; from /proc."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            with suppress(OSError):  # it ended while it was looked at
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def left_after(seconds: float, variable: str, value: str) -> set[int]:
    """Ids of the processes that are still there when so much time has passed; empty as soon as none is."""
    until = time.monotonic() + seconds
    while (left := processes_with(variable, value)) and time.monotonic() < until:
        _PACE.wait(0.05)
    return left


def end_all(left: set[int]) -> None:
    """End what should not have been left, so that a failing test leaves nothing behind."""
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
