"""Small files that all users of a store see: labels, aliases, runs, tombstones, leases, messages of runs.

In a folder they are files. In a store with a remote (`tasks.store.remote`) they are objects, and the local
file is a copy of what the remote took; messages (`telling/`) have no copy, since each is read once, at once.
"""

import shutil
import time
from collections.abc import Hashable
from pathlib import Path

from tokmill.tasks.store import disk
from tokmill.tasks.store.remote import TELLING, Remote, remote_of


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


def leave(path: Path, data: bytes) -> None:
    """Write a message, which need not survive a crash; in a folder that is gone, FileNotFoundError."""
    if remote := _board(path):
        remote.replace(remote.name_of(path), data)
    else:
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(data)
        temporary.replace(path)


def heard(path: Path, most_bytes: int) -> bytes:
    """Return a message; raises FileNotFoundError if there is none."""
    if remote := _board(path):
        return remote.read(remote.name_of(path), most_bytes)
    return disk.read(path, most_bytes)


def stamps(folder: Path) -> dict[str, Hashable]:
    """Return the messages in a folder by name, each with a token that changes on every write."""
    if remote := _board(folder):
        return remote.stamps(remote.name_of(folder))
    found: dict[str, Hashable] = {}
    for entry in disk.entries(folder):
        try:
            state = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        found[entry.name] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return found


def remove_message(path: Path) -> None:
    """Remove a message, or a folder of them, as far as possible."""
    if remote := _board(path):
        remote.remove_below(remote.name_of(path))
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def folders(folder: Path) -> list[str]:
    """Return the names in a folder of messages: one for each run."""
    if remote := _board(folder):
        return remote.folders(remote.name_of(folder))
    return [entry.name for entry in disk.entries(folder)]


def _board(path: Path) -> Remote | None:
    remote = remote_of(path)
    return remote if remote is not None and remote.name_of(path).partition("/")[0] == TELLING else None


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
