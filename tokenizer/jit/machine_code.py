"""The cache of machine code.

The folder is `$TOKMILL_KERNEL_CACHE`, else `$XDG_CACHE_HOME/tokmill/kernels`, else the same in `~/.cache`,
and below it a digest of everything that machine code depends on (`numba_cache`). Reading machine code means
running it, so the last resort, a folder under the system's temporary one, is used only if nobody else can
write to it.
If several processes need the same kernel at once, one compiles it, and the others wait and read the result.
"""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@functools.cache
def cache_folder(digest: str) -> Path:
    """Return the folder for machine code of the sources with this digest; it exists and is writable."""
    for root in _roots():
        folder = root / digest
        if _is_writable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="tokmill-kernels-"))


def kernel_cache() -> tuple[Path, bool]:
    """Return the folder below which machine code is kept, and whether it outlives this process."""
    for root in _roots():
        if _is_writable(root):
            return root, True
    return Path(tempfile.gettempdir()), False


@contextlib.contextmanager
def alone(folder: Path, kernel: str) -> Iterator[None]:
    """Keep other processes from compiling the same kernel within the block, if files can be locked.

    If they cannot, processes may do the same work at the same time, which is harmless. The lock of a process
    that is killed ends with it.
    """
    with contextlib.ExitStack() as held:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                fcntl.flock(held.enter_context((folder / f"{kernel}.lock").open("ab")), fcntl.LOCK_EX)
        yield


def forget(folder: Path, kernel: str) -> None:
    """Remove the machine code of a kernel, as far as possible."""
    for file in folder.rglob(f"*.{kernel}-*"):
        with contextlib.suppress(OSError):
            file.unlink()


def _roots() -> Iterator[Path]:
    override = os.environ.get("TOKMILL_KERNEL_CACHE")
    if override:
        yield Path(override).expanduser()
    else:
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tokmill" / "kernels"
    private = Path(tempfile.gettempdir()) / f"tokmill-kernels-{_user_number()}"
    if _is_private(private):
        yield private


def _user_number() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _is_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return status.st_uid == _user_number() and not status.st_mode & 0o077
