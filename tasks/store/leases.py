"""Leases: what running work needs, so that it is not removed meanwhile.

`<store>/leases/<run id>.json` exists while a run is executed. It names the process, with a heartbeat
(`tasks.store.liveness`), and what the run needs:

- every artifact that has a label under a name of its profile, in any version: the run may find any of them;
- every artifact that it asked for or was given, by fingerprint, under whatever name others made it.

A lease whose process has died protects nothing. One that cannot be read protects everything.

The two sides of a race are a run that finds an artifact and relies on it for hours, and a collector (`tokmill
gc`, in `tasks.store.collector`) that decided a moment earlier to remove it. Each announces itself before it
looks:

    run         writes the fingerprints into its lease;  then reads the announcement;  then looks them up
    collector   writes its announcement;  then reads the leases;  then removes what none of them needs

So at least one sees the other. A run that sees a collector waits until that has read its lease: the
announcement `<store>/leases/collector` lists each lease that was read, with its number, which grows with
every change. The collector reads them every moment, and again just before each removal. A run writes one file
per job and not per artifact, before the job's tasks are submitted. Tasks in other processes write nothing.

The heartbeats are as good as clocks: a collector on another machine that stands still for minutes between its
last look and a removal may remove what a run has found in the meantime.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Final
from uuid import uuid4

from pydantic import Field, ValidationError

from tokmill.tasks.core.context import context_value
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout
from tokmill.tasks.store.liveness import Process, beating, silent
from tokmill.tasks.store.publish import tidy
from tokmill.tasks.store.storage import STORAGE, FileState

SUFFIX: Final = ".json"
_ANNOUNCEMENT = "collector"
_MOST_BYTES = 256 << 20
_WAIT_SECONDS = 0.02


class Needs(Process):
    """The content of a lease: its process, and what that needs.

    Attributes:
        names: of a profile; artifacts of this name, and of names that begin with it and a dot, are needed.
        number: grows with every change, and from one process to the next of the same run.
        holds: the first digits of fingerprints, sorted; None for everything, as in one that cannot be read.
    """

    names: str = ""
    number: int = 0
    holds: list[str] | None = Field(default_factory=list)


class Announcement(Process):
    """A collector's announcement; `seen` has the number of each lease that it has read, by run id."""

    seen: Mapping[str, int] = {}


class Lease:
    """A lease of this process; see `leased`.

    Attributes:
        key: the id of the run, or what else is being done.
        root: of the store.
    """

    def __init__(self, layout: Layout, key: str, needs: Needs) -> None:
        self.key = key
        self.root = layout.root
        self._layout = layout
        self._path = lease_path(layout, key)
        self._needs = needs
        self._held = set[str]()
        self._number_seen = -1
        self._mutex = threading.Lock()

    def hold(self, fingerprints: Iterable[str]) -> None:
        """Need some artifacts, whether they exist or not, until the lease ends.

        When it returns, no collector removes any of them.

        Raises:
            StoreError: the lease cannot be written.
        """
        with self._mutex:
            new = {each[:PREFIX_CHARS] for each in fingerprints} - self._held
            if new:
                self._held |= new
                changed = {"number": self._needs.number + 1, "holds": sorted(self._held)}
                self._needs = self._needs.model_copy(update=changed)
                self._write()
        self._await_collector()

    def begin(self) -> None:
        """Write the file, and wait for a collector to have read it, if there is one.

        Raises:
            StoreError: the lease cannot be written.
        """
        with self._mutex:
            self._write()
        self._await_collector()

    def _write(self) -> None:
        with reported_as(f"the lease of {self.key} cannot be written"):
            STORAGE.replace(self._path, self._needs.model_dump_json().encode("utf-8") + b"\n")

    def _await_collector(self) -> None:
        number = self._needs.number
        while self._number_seen < number:
            collector = announced(self._layout)
            if collector is None or collector.seen.get(self.key, -1) >= number:
                self._number_seen = number
            else:
                time.sleep(_WAIT_SECONDS)

    def beat(self) -> None:
        """Renew the heartbeat."""
        with self._mutex:
            STORAGE.touch(self._path)

    def end(self) -> None:
        """Remove the file."""
        STORAGE.remove(self._path)


# None where nothing is being executed, as in `tokmill ls`, and in a task of another process.
LEASE: ContextVar[Lease | None] = ContextVar("lease", default=None)


@contextmanager
def leased(layout: Layout, key: str, *, names: str = "") -> Iterator[Lease]:
    """Hold a lease for the length of the block; within a block of the same key, the same one is held.

    Args:
        layout: the store.
        key: the id of the run, or another name of a file.
        names: of the profile; empty if the work has no names of its own.

    Raises:
        StoreError: the lease cannot be written.
    """
    current = LEASE.get()
    if current is not None and current.key == key:
        yield current
        return
    tidy(layout)
    if silent(_announcement_path(layout)) is not None:
        withdraw(layout)
    own = Process.own().model_dump()
    lease = Lease(layout, key, Needs(**own, names=names, number=time.time_ns() // 1_000_000))
    lease.begin()
    try:
        with beating(lease.beat, f"heartbeat of {key}"), context_value(LEASE, lease):
            yield lease
    finally:
        lease.end()


def at_work(layout: Layout, what: str) -> AbstractContextManager[Lease]:
    """Hold a lease for work that is not a run, for the length of the block; within a run, the run's.

    Args:
        layout: the store.
        what: is being done, as part of a file's name: `export`.
    """
    current = LEASE.get()
    if current is not None and current.root == layout.root:
        return nullcontext(current)
    return leased(layout, f"{what}-{uuid4()}")


def hold(fingerprints: Iterable[str]) -> None:
    """Need some artifacts until the work of this context ends; nothing if it has no lease."""
    lease = LEASE.get()
    if lease is not None:
        lease.hold(fingerprints)


def lease_path(layout: Layout, key: str) -> Path:
    """Return the file of a lease."""
    return layout.leases / f"{key}{SUFFIX}"


def live_leases(layout: Layout) -> dict[str, Needs]:
    """Return the leases whose process lives, by key."""
    return LeaseReader(layout).read()


class LeaseReader:
    """Reads the leases of a store again and again; only those that have changed are parsed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parsed: dict[str, tuple[FileState, Needs]] = {}

    def read(self) -> dict[str, Needs]:
        """Return the leases whose process lives, by key."""
        names = sorted(entry.name for entry in STORAGE.entries(self._layout.leases))
        keys = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
        return {key: needs for key in keys if (needs := self._read_one(key)) is not None}

    def _read_one(self, key: str) -> Needs | None:
        """Return what a lease needs; None if it has ended, or its process has died."""
        path = lease_path(self._layout, key)
        try:
            state = STORAGE.state(path)
            parsed = self._parsed.get(key)
            if parsed is None or parsed[0] != state:
                parsed = (state, Needs.model_validate_json(STORAGE.read(path, _MOST_BYTES)))
                self._parsed[key] = parsed
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            return Needs(holds=None)
        silent_seconds = time.time() - state.mtime_ns / 1e9
        return None if parsed[1].is_gone(silent_seconds) else parsed[1]


def announced(layout: Layout) -> Announcement | None:
    """Return the announcement of the collector that is at work, or None if there is none."""
    path = _announcement_path(layout)
    if not STORAGE.is_file(path) or silent(path) is not None:
        return None
    try:
        return Announcement.model_validate_json(STORAGE.read(path, _MOST_BYTES))
    except (FileNotFoundError, ValidationError):  # it has just ended
        return None


def announce(layout: Layout, seen: Mapping[str, int]) -> None:
    """Write a collector's announcement; the collector holds the lock of collectors."""
    content = Announcement(**Process.own().model_dump(), seen=seen)
    with reported_as("the collector cannot be announced"):
        path = _announcement_path(layout)
        STORAGE.replace(path, content.model_dump_json().encode("utf-8") + b"\n")


def beat_announcement(layout: Layout) -> None:
    """Renew the heartbeat of the announcement."""
    STORAGE.touch(_announcement_path(layout))


def withdraw(layout: Layout) -> None:
    """Remove the announcement."""
    STORAGE.remove(_announcement_path(layout))


def _announcement_path(layout: Layout) -> Path:
    return layout.leases / _ANNOUNCEMENT
