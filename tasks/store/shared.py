"""Small files that all users of a store see: labels, aliases, runs, tombstones, leases.

In a folder they are files. In a store with a remote (`tasks.store.remote`) they are objects, and the local
file is a copy of what the remote took.
"""

import time
from pathlib import Path

from tokmill.tasks.store import disk
from tokmill.tasks.store.remote import remote_of


def create(path: Path, data: bytes) -> None:
    """Write a file durably, and its folder if need be; raises FileExistsError if the name is taken."""
    if remote := remote_of(path):
        remote.create(remote.name_of(path), data)
        disk.leave(path, data)
    else:
        disk.create(path, data)


def replace(path: Path, data: bytes) -> None:
    """Write a file durably; a reader, or a crash, finds either the old bytes or the new ones."""
    if remote := remote_of(path):
        remote.replace(remote.name_of(path), data)
        disk.leave(path, data)
    else:
        disk.replace(path, data)


def touch(path: Path) -> None:
    """Set the modification time of a file to the present; an object is written again."""
    if remote := remote_of(path):
        remote.replace(remote.name_of(path), path.read_bytes())
    disk.touch(path)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    if remote := remote_of(path):
        remote.remove([remote.name_of(path)])
    path.unlink(missing_ok=True)


def bring_folder(folder: Path) -> None:
    """Bring the local copies of a folder's files in step with the remote, if there is one."""
    if remote := remote_of(folder):
        remote.bring_folder(remote.name_of(folder))


def bring(path: Path, *, sure: bool = False) -> None:
    """Bring the local copy of a file in step with the remote, if there is one; `sure`: as `Remote.bring`."""
    if remote := remote_of(path):
        remote.bring(remote.name_of(path), sure=sure)


def now_ns(root: Path) -> int:
    """Return the time by the clock of a store's file system, or of its remote, in nanoseconds since 1970.

    Ages of files are compared with it, so that it does not matter whether the clocks of machines agree.
    """
    remote = remote_of(root)
    return local_now_ns(root) if remote is None else remote.now_ns()


def local_now_ns(root: Path) -> int:
    """Return the time by the clock of the file system of a store's folder, in nanoseconds since 1970."""
    clock = root / ".cache" / "clock"
    try:
        disk.leave(clock, b"")
        return disk.state(clock).mtime_ns
    except OSError:  # a store that may only be read
        return time.time_ns()
