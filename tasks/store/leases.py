"""Leases: what running work needs, so that it is not removed meanwhile, and whether its process lives.

A run writes a fingerprint into `leases/<run id>.json` before it looks it up. From another machine only the
heartbeat is visible, the file's time by the clock of the store. A dead process's lease protects nothing; one
that cannot be read protects everything.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.core.context import context_value
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout, tidy

BEAT_SECONDS = 15.0
SILENCE_SECONDS = 300.0
_PROC = Path("/proc")
_AFTER_THE_NAME = 3  # in /proc/<id>/stat, fields are numbered from 1, and the name in brackets is the second
_STATE, _BEGAN = 3, 22


class Process(BaseModel):
    """What distinguishes a process from all others."""

    model_config = ConfigDict(frozen=True)

    host: str = "an unknown machine"  # the machine's name, for people
    boot: str = ""  # the id of the boot and of the process id namespace; empty if the system reports none
    pid: int = 0  # process id
    began: int = 0  # its start, in ticks since the boot; 0 if unknown

    @classmethod
    def own(cls) -> Self:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this machine; `began` is 0 if there is none."""
        began = _began(pid) or 0
        return cls(host=socket.gethostname(), boot=_boot() if began else "", pid=pid, began=began)

    def is_gone(self, silent_seconds: Callable[[], float]) -> bool:
        """Whether it has ended, as far as this machine can tell."""
        if self.boot and self.boot == _boot():
            return _began(self.pid) != self.began
        return silent_seconds() > SILENCE_SECONDS


class Needs(Process):
    """The content of a lease: its process, and what that needs."""

    names: str = ""  # of a profile; artifacts of this name, and of names that begin with it and a dot
    # the first digits of fingerprints, sorted; None for everything, as in a lease that cannot be read
    holds: list[str] | None = Field(default_factory=list)


class Dead(Needs):
    """A lease whose process is gone: `heard_ns` is its last heartbeat, `key` the run."""

    key: str
    heard_ns: int

    @property
    def words(self) -> str:
        """What happened, for people."""
        gone = f"process {self.pid} on {self.host} is gone"
        return f"{gone}: it was killed, or its machine went down"


class Lease:
    """A lease of this process on the store at `root`, for the run `key` or other work; see `leased`."""

    def __init__(self, layout: Layout, key: str, names: str) -> None:
        self.key = key
        self.root = layout.root
        self._path = lease_path(layout, key)
        self._needs = Needs(**Process.own().model_dump(), names=names)
        self._mutex = threading.Lock()
        self.is_kept = False  # so that whoever looks once this process is gone ends the run
        self._write()

    def hold(self, fingerprints: Iterable[str]) -> None:
        """Need some artifacts, whether they exist or not, until the lease ends."""
        with self._mutex:
            held = set(self._needs.holds or ())
            if new := {each[:PREFIX_CHARS] for each in fingerprints} - held:
                self._needs = self._needs.model_copy(update={"holds": sorted(held | new)})
                self._write()

    def _write(self) -> None:
        with reported_as(f"the lease of {self.key} cannot be written"):
            shared.replace(self._path, self._needs.model_dump_json().encode("utf-8") + b"\n")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the heartbeat while the work of this block goes on, and remove the file afterwards."""
        ended = threading.Event()
        heart = threading.Thread(
            target=self._beat, args=(ended,), name=f"heartbeat of {self.key}", daemon=True
        )
        heart.start()
        try:
            yield
        finally:
            ended.set()
            heart.join()
            if not self.is_kept:
                shared.remove(self._path)

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(OSError), self._mutex:  # the store may be unreachable for a while
                shared.touch(self._path)


# None where nothing is being executed, as in `tokmill ls`, and in a task of another process.
LEASE: ContextVar[Lease | None] = ContextVar("lease", default=None)


@contextmanager
def leased(layout: Layout, key: str, *, names: str = "") -> Iterator[Lease]:
    """Hold a lease for the length of the block; within a block of the same key, the same one is held."""
    current = LEASE.get()
    if current is not None and current.key == key:
        yield current
        return
    tidy(layout)
    lease = Lease(layout, key, names)
    with lease.kept(), context_value(LEASE, lease):
        yield lease


def at_work(layout: Layout, what: str) -> AbstractContextManager[Lease]:
    """Hold a lease for work that is not a run, for the length of the block; within a run, the run's."""
    current = LEASE.get()
    if current is not None and current.root == layout.root:
        return nullcontext(current)
    return leased(layout, f"{what}-{uuid4()}")


def hold(fingerprints: Iterable[str]) -> None:
    """Need some artifacts until the work of this context ends; nothing if it has no lease."""
    if lease := LEASE.get():
        lease.hold(fingerprints)


def lease_path(layout: Layout, key: str) -> Path:
    """Return the file of a lease."""
    return layout.leases / f"{key}.json"


def live_leases(layout: Layout) -> dict[str, Needs]:
    """Return the leases whose process lives, by key."""
    return {key: needs for key, needs in read_leases(layout).items() if not isinstance(needs, Dead)}


def read_leases(layout: Layout) -> dict[str, Needs]:
    """Return all leases by key; those of dead processes are `Dead`."""
    shared.bring_folder(layout.leases)
    now_ns = cache(lambda: shared.now_ns(layout.root))
    leases = {}
    for name in sorted(entry.name for entry in disk.entries(layout.leases)):
        key = name.removesuffix(".json")
        if key != name and name[0] != ".":
            with suppress(FileNotFoundError):  # it has just ended
                leases[key] = _read(lease_path(layout, key), key, now_ns)
    return leases


def _read(path: Path, key: str, now_ns: Callable[[], int]) -> Needs:
    heard_ns = disk.state(path).mtime_ns
    try:
        needs = shared.read_model(path, Needs, "a lease")
    except StoreError:
        needs = Needs(holds=None)
    if needs.is_gone(lambda: (now_ns() - heard_ns) / 1e9):
        return Dead(**needs.model_dump(), key=key, heard_ns=heard_ns)
    return needs


def _boot() -> str:
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
