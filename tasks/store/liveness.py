"""Whether a process is still alive, from a file that it left in the store.

The file exists while the process is at work (`tasks.store.leases`). It names the process, and its
modification time is a heartbeat. On the same machine, in the same boot and process id namespace, the process
itself is looked up by its id and start time. So a killed process is noticed at once, and another one with its
id is not mistaken for it. From elsewhere only the heartbeat is visible; after some minutes without one, the
process counts as dead.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tokmill.tasks.store.storage import STORAGE

BEAT_SECONDS = 15.0
SILENCE_SECONDS = 300.0
_MOST_BYTES = 256 << 20  # a lease lists what it holds
_PROC = Path("/proc")
_AFTER_THE_NAME = 3  # in /proc/<id>/stat, fields are numbered from 1, and the name in brackets is the second
_STATE, _BEGAN = 3, 22


class Process(BaseModel):
    """What distinguishes a process from all others.

    Attributes:
        host: the machine's name, for people.
        boot: the id of the boot and of the process id namespace; empty if the system reports none.
        pid: process id.
        began: its start, in ticks since the boot; 0 if unknown.
    """

    model_config = ConfigDict(frozen=True)

    host: str = "an unknown machine"
    boot: str = ""
    pid: int = 0
    began: int = 0

    @classmethod
    def own(cls) -> Self:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this machine; `began` is 0 if there is none."""
        began = _began(pid) or 0
        return cls(host=socket.gethostname(), boot=_boot() if began else "", pid=pid, began=began)

    def is_gone(self, silent_seconds: float) -> bool:
        """Whether it has ended, as far as this machine can tell.

        Args:
            silent_seconds: time since its last heartbeat.
        """
        if self.boot and self.boot == _boot():
            return _began(self.pid) != self.began
        return silent_seconds > SILENCE_SECONDS


@contextmanager
def beating(beat: Callable[[], None], name: str) -> Iterator[None]:
    """Call `beat` every few seconds for the length of the block, in a thread of that name.

    Args:
        beat: renews a heartbeat; an OSError is ignored, since the store may be unreachable for a while.
        name: of the thread.
    """
    ended = threading.Event()
    heart = threading.Thread(target=_beat, args=(beat, ended), name=name, daemon=True)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()


def silent(path: Path) -> tuple[Process, float] | None:
    """Return the process of a file and the time of its last heartbeat, if it has died; otherwise None."""
    try:
        heard = STORAGE.state(path).mtime_ns / 1e9
    except OSError:  # it has just ended, or nobody can tell
        return None
    try:
        process = Process.model_validate_json(STORAGE.read(path, _MOST_BYTES))
    except FileNotFoundError:  # it has just ended
        return None
    except (OSError, ValidationError):
        process = Process()
    return (process, heard) if process.is_gone(time.time() - heard) else None


def _beat(beat: Callable[[], None], ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        with suppress(OSError):
            beat()


def _boot() -> str:
    """Return the boot id and the process id namespace; empty if the system reports none."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    return ""


def _began(pid: int) -> int | None:
    """Return a process's start in ticks; None if there is no such process, or only a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[_STATE - _AFTER_THE_NAME] in {"Z", "X"}:
        return None
    return int(fields[_BEGAN - _AFTER_THE_NAME])
