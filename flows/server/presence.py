"""One `tokmill up` for a store at a time, and where it is.

A lock that ends with its process says whether somebody serves; a file beside it says who, where.
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
class Presence:
    """A `tokmill up` that serves, or did.

    Attributes:
        url: of its server.
        folder: that it serves.
        deployment: its name.
        pid: of its process.
    """

    url: str
    folder: str
    deployment: str
    pid: int


@contextmanager
def present(served: ServedFolder, url: str, logs: Path) -> Iterator[None]:
    """Be the one that serves a store, for the length of the block.

    Raises:
        ServeError: another is; names its page, folder and process.
    """
    logs.mkdir(parents=True, exist_ok=True)
    lock = FileLock(logs / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        other = found(logs)
        where = f"from {other.folder} at {other.url} (process {other.pid})" if other else "by another process"
        raise ServeError(
            f"up: the store {served.store} is already served {where}; use or stop that one, or serve another "
            "--store"
        ) from error
    own = Presence(url, str(served.folder), served.name, os.getpid())
    try:
        (logs / _FILE).write_text(json.dumps(asdict(own)), encoding="utf-8")
        yield
    finally:
        (logs / _FILE).unlink(missing_ok=True)
        lock.release()


def found(logs: Path) -> Presence | None:
    """Return who serves or served last, as far as the file can be read."""
    try:
        return Presence(**json.loads((logs / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
