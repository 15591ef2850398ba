"""Locks between machines: a lease, which is an object that its holder changes every few seconds.

    local lock      first: one process of this machine asks the service, the others wait for it
    the object      created if there is none, with the holder's process and a token
    heartbeat       the holder replaces the object, from the state that it knows, every BEAT_SECONDS
    taken over      by whoever has seen no change for SILENCE_SECONDS of its own clock, or knows that the
                    process is gone, since it ran on this machine; from the state that was seen, so once

No clocks are compared. A holder that is cut off for longer than SILENCE_SECONDS loses the lease without
knowing it. Then an artifact is made twice, and the record that comes first counts.
"""

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from tokmill.tasks import remote
from tokmill.tasks.remote import ChangedError
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.interface import Lock
from tokmill.tasks.store.liveness import Process
from tokmill.tokenizer.core.stopping import raise_if_stopped

BEAT_SECONDS = 15.0
SILENCE_SECONDS = 60.0
_POLL_SECONDS = 1.0
_LONGEST_WAIT = 10.0
_MOST_BYTES = 1 << 16
_MUCH_SILENCE = 0.0  # of a process on another machine, nothing is known


class _Lease(BaseModel):
    """The content of the object."""

    model_config = ConfigDict(frozen=True)

    process: Process = Process()
    token: str = ""
    beat: int = 0

    def encoded(self) -> bytes:
        return self.model_dump_json().encode("utf-8") + b"\n"

    def next(self) -> "_Lease":
        return self.model_copy(update={"beat": self.beat + 1})


class RemoteLock:
    """An exclusive lock between all processes of all machines that use a store.

    Args:
        url: of the object.
        local: the lock between the processes of this machine.
        taken: called when the lock has been taken.
    """

    def __init__(self, url: str, local: Lock, taken: Callable[[], None]) -> None:
        self._url = url
        self._local = local
        self._taken = taken
        self._seen: tuple[str, float] = ("", 0.0)
        self._heart: tuple[threading.Event, threading.Thread] | None = None
        self._lost = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        return self._local.try_acquire() and self._or_let_go(self._try_lease)

    def acquire(self) -> None:
        """Wait for the lock, however long that takes."""
        self._local.acquire()
        self._or_let_go(self._wait)

    def release(self) -> None:
        """Let the lock go."""
        if self._heart is not None:
            ended, thread = self._heart
            self._heart = None
            ended.set()
            thread.join(_LONGEST_WAIT)
            with suppress(OSError):  # it ends by its silence
                if not self._lost:
                    remote.remove([self._url])
        self._local.release()

    def owner(self) -> str:
        """Return who holds the lock, in words."""
        with suppress(OSError):
            process = self._read().process
            return f"process {process.pid} on {process.host}"
        return self._local.owner()

    def _or_let_go(self, take: Callable[[], bool]) -> bool:
        """Take the lease, and let the local lock go if that fails."""
        held = False
        try:
            with reported_as(f"lock {self._url} cannot be taken"):
                held = take()
            return held
        finally:
            if not held:
                self._local.release()

    def _wait(self) -> bool:
        while not self._try_lease():
            raise_if_stopped()
            time.sleep(_POLL_SECONDS)
        return True

    def _try_lease(self) -> bool:
        lease = _Lease(process=Process.own(), token=uuid.uuid4().hex)
        try:
            etag = remote.create(self._url, lease.encoded())
        except FileExistsError:
            try:
                dead = self._dead()
                if dead is None:
                    return False
                etag = remote.exchange(self._url, lease.encoded(), dead)
            except (ChangedError, FileNotFoundError):
                return False  # somebody else was first
        self._begin(lease, etag)
        return True

    def _dead(self) -> str | None:
        """Return the state of a lease whose holder is gone as far as can be known; None if it may live."""
        etag = remote.stat(self._url).etag
        if etag != self._seen[0]:
            self._seen = (etag, time.monotonic())
            return etag if self._read().process.is_gone(_MUCH_SILENCE) else None
        return etag if time.monotonic() - self._seen[1] > SILENCE_SECONDS else None

    def _read(self) -> _Lease:
        try:
            return _Lease.model_validate_json(remote.read(self._url, _MOST_BYTES))
        except ValidationError:  # of another version
            return _Lease()

    def _begin(self, lease: _Lease, etag: str) -> None:
        ended = threading.Event()
        heart = threading.Thread(
            target=self._beat, args=(lease, etag, ended), name=f"heartbeat of {self._url}", daemon=True
        )
        self._lost, self._heart = False, (ended, heart)
        heart.start()
        self._taken()

    def _beat(self, lease: _Lease, etag: str, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            lease = lease.next()
            try:
                etag = remote.exchange(self._url, lease.encoded(), etag)
            except ChangedError:
                self._lost = not ended.is_set()
                return
            except BaseException:  # noqa: S112 - no answer, or the run is stopped: it may be told later
                continue
