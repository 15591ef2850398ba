"""The store of those who name none: a temporary folder that is removed when the process ends.

So a cell of a notebook that is executed again finds what it has made, and nothing is left behind. It lies
where Python's temporary files do (TMPDIR). A forked child shares the folder and does not remove it.
"""

import atexit
import os
import shutil
import tempfile
import threading
from pathlib import Path

from tokmill.flows.library.store import Store

_LOCK = threading.Lock()
_FOLDERS: list[Path] = []


def scratch_store() -> Store:
    """Return the temporary store of this process."""
    with _LOCK:
        if not _FOLDERS or not _FOLDERS[0].is_dir():
            folder = Path(tempfile.mkdtemp(prefix="tokmill-"))
            _FOLDERS[:] = [folder]
            atexit.register(_remove, folder, os.getpid())
        return Store(_FOLDERS[0] / "store")


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _renew_lock() -> None:
    """Replace the lock in a forked child: another thread may have held it."""
    global _LOCK  # noqa: PLW0603 - there is one per process
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
