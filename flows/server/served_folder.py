"""The folder that a `tokmill up` serves or a `tokmill server deploy` registers, and its store.

The deployment and the work pool are named after both. So two folders at one Prefect server have separate
schedules, and a worker never takes the runs of another folder. A folder that is moved, or served with
another store, gets a new deployment and a new work pool.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from tokmill.flows.errors import ServeError
from tokmill.flows.profile.served import served_profiles

_DIGITS = 6


@dataclass(frozen=True)
class ServedFolder:
    """A folder with profiles, and the store for its artifacts.

    Attributes:
        folder: the working folder of the runs; relative paths of profiles start here. Absolute.
        store: folder of the artifacts, unless a run names another (absolute), or its URL.
        pool: a work pool that others look after; None for the folder's own.
    """

    folder: Path
    store: Path | str
    pool: str | None = None

    @classmethod
    def of(cls, folder: Path, store: Path | str, pool: str | None = None) -> "ServedFolder":
        """Resolve symbolic links, so that every path to a folder gives the same name."""
        return cls(folder.resolve(), store.resolve() if isinstance(store, Path) else store, pool)

    @cached_property
    def name(self) -> str:
        """The deployment's name: the folder's, and digits that tell folders of the same name apart."""
        word = re.sub(r"[^a-z0-9]+", "-", self.folder.name.lower()).strip("-") or "folder"
        both = f"{self.folder}\0{self.store}".encode("utf-8", "surrogateescape")
        return f"{word}-{hashlib.blake2b(both).hexdigest()[:_DIGITS]}"

    @property
    def work_pool(self) -> str:
        """The work pool's name."""
        return self.pool or f"tokmill-{self.name}"


_FILE, _LOCK = "up.json", "lock"


@dataclass(frozen=True)
class Serving:
    """A running or past `tokmill up`.

    Attributes:
        url: URL of its server.
        folder: the folder that it serves.
        deployment: name of its deployment.
        pid: its process id.
    """

    url: str
    folder: str
    deployment: str
    pid: int


@contextmanager
def lock_store(served: ServedFolder, url: str, logs: Path) -> Iterator[None]:
    """Hold the lock of a store during the block.

    Raises:
        ServeError: another process holds it; the message has its URL, folder and process id.
    """
    logs.mkdir(parents=True, exist_ok=True)
    lock = FileLock(logs / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        other = last_served(logs)
        where = f"from {other.folder} at {other.url} (process {other.pid})" if other else "by another process"
        raise ServeError(
            f"up: the store {served.store} is already served {where}; use or stop that one, or serve another "
            "--store"
        ) from error
    own = Serving(url, str(served.folder), served.name, os.getpid())
    try:
        (logs / _FILE).write_text(json.dumps(asdict(own)), encoding="utf-8")
        yield
    finally:
        (logs / _FILE).unlink(missing_ok=True)
        lock.release()


def last_served(logs: Path) -> Serving | None:
    """Return the current or last `tokmill up`, or None if there is no readable file."""
    try:
        return Serving(**json.loads((logs / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


LOOK_SECONDS = 2.0

_Seen = dict[str, tuple[int, int]]


@dataclass
class Registration:
    """The registration of one folder at one server.

    Attributes:
        served: the folder.
        environment: of the process that registers; it names the server.
        any_profile: whether runs may name profiles elsewhere.
        announce: called with each line for the user.
    """

    served: ServedFolder
    environment: Mapping[str, str]
    any_profile: bool
    announce: Callable[[str], None]
    _seen: _Seen = field(default_factory=dict)
    _next: float = 0.0

    def register(self) -> None:
        """Register the deployments.

        Raises:
            ServeError: the server or Prefect refuses them.
        """
        self._seen = self._look()
        module = ["tokmill.flows.deploying.registering", str(self.served.folder), str(self.served.store)]
        done = run_module([*module, *(["--any-profile"] if self.any_profile else [])], self.environment)
        if done.returncode:
            output = (done.stderr or done.stdout).strip()
            raise ServeError(f"the deployments of {self.served.name!r} could not be registered: {output}")
        for line in done.stdout.splitlines():
            self.announce(line)

    def look(self) -> None:
        """Register the deployments again if a profile has changed since; looks every two seconds."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_SECONDS
        now = self._look()
        changed = sorted(name for name in now.keys() | self._seen if now.get(name) != self._seen.get(name))
        if changed:
            try:
                self.register()
            except ServeError as error:
                self.announce(str(error))
            else:
                self.announce(f"registered again: {', '.join(changed)}")

    def _look(self) -> _Seen:
        """Return the size and the time of each profile's file."""
        found: _Seen = {}
        for profile in served_profiles(self.served.folder):
            try:
                status = profile.path.stat()
            except OSError:  # removed a moment ago
                continue
            found[profile.given] = (status.st_mtime_ns, status.st_size)
        return found


def run_module(module: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one of our modules; -P prevents imports from the working directory."""
    command = [sys.executable, "-P", "-m", *module]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
