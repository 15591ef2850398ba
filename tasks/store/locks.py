"""Locks between processes; a lock ends with the process that holds it.

`fcntl.flock` belongs to an open file, not to a name on disk. The kernel frees it when the process ends,
however it ends. So a lock file without an owner means nothing, and a process that gets its lock knows that
the former owner has ended. Two threads of one process exclude each other as two processes do, since each
opens the file itself.

The file is removed on release. A waiting process may then get the lock of a file that no longer has a name,
which excludes nobody. It detects that by comparing inodes, and tries again with the new file.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tokmill.tasks.store.durable import reported_as

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW  # who holds a lock writes into its file


class ProcessLock:
    """An exclusive lock on `path`, owned by this object until it is released or its process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        return self._acquire(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def acquire(self) -> None:
        """Wait for the lock, however long that takes."""
        self._acquire(fcntl.LOCK_EX)

    def release(self) -> None:
        """Remove the file and let the lock go."""
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)  # first: after the release it may be another process's file
            os.close(self._descriptor)
            self._descriptor = None

    def owner(self) -> str:
        """Return the holder of the lock as written in the file, e.g. `process 42`."""
        try:
            return self.path.read_text(encoding="ascii", errors="replace").strip() or "unknown"
        except OSError:
            return "unknown"

    def _acquire(self, operation: int) -> bool:
        with reported_as(f"lock {self.path} cannot be taken"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(self.path, _FLAGS, 0o644)
                try:
                    fcntl.flock(descriptor, operation)
                except BaseException as error:
                    os.close(descriptor)
                    if isinstance(error, BlockingIOError):
                        return False
                    raise
                if self._is_named(descriptor):
                    self._descriptor = descriptor
                    self._sign()
                    return True
                os.close(descriptor)

    def _sign(self) -> None:
        """Write the holder into the file, for those who wait; a full disk does not prevent the lock."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"process {os.getpid()}\n".encode("ascii"), 0)

    def _is_named(self, descriptor: int) -> bool:
        """Whether the open file is still the one that the path names."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))
