"""Allows one `tokmill up` per store at a time, and records where it is.

A lock, which is released when its process ends, decides; a file next to it has the address.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from tokmill.flows.errors import ServeError
from tokmill.flows.server.served_folder import ServedFolder

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
    except (OSError, ValueError, TypeError):
        return None
