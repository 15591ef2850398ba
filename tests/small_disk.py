"""A small disk of one's own: commands that see a tiny tmpfs where everybody else sees an empty folder."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")


@functools.cache
def _permitted() -> bool:
    if shutil.which("unshare") is None:
        return False
    mounting = [*_OWN_MOUNTS, "mount", "-t", "tmpfs", "tokmill-test", tempfile.gettempdir()]
    return subprocess.run(mounting, check=False, capture_output=True).returncode == 0


def permitted_mounts() -> tuple[str, ...]:
    """Return the beginning of a command that may have mounts of its own; skips the test where none may."""
    if not _permitted():
        pytest.skip("mounting a small file system is not permitted here")
    return _OWN_MOUNTS


def on_small_disk(place: Path, size: str, script: str) -> list[str]:
    """Return the command that runs a shell script with a tmpfs of `size` at `place`, which ends with it.

    Skips the test where a process may not have mounts of its own.
    """
    place.mkdir()
    mounted = f'mount -t tmpfs -o size={size} tokmill-test "$0" && {script}'
    return [*permitted_mounts(), "sh", "-c", mounted, str(place)]
