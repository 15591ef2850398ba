"""Provenance: by which code, on which machine, by whom and for which run an artifact was made.

It is not part of the fingerprint, and collecting it never fails a run: what cannot be determined is None.
"""

import functools
import getpass
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from tokmill.tasks.core.context import total_memory, usable_cores
from tokmill.tasks.store.fingerprint import digest_bytes

_PACKAGES = (
    *("tokmill", "numpy", "numba", "llvmlite", "regex", "unicodedata2", "pyarrow", "duckdb", "pydantic"),
    *("orjson", "zstandard", "lz4", "prefect"),
)
_CODE = ("flows", "tasks", "tokenizer", "tokmill", "profiles", "pyproject.toml")
_GIT_SECONDS = 10
_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
_METADATA = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>[^-]+)\.(dist|egg)-info")
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$"


def _in_the_calendar(text: str) -> str:
    datetime.fromisoformat(text)  # its ValueError becomes pydantic's
    return text


Moment: TypeAlias = Annotated[str, StringConstraints(pattern=_MOMENT), AfterValidator(_in_the_calendar)]
"""A moment in UTC, as ISO 8601 with `Z`, as `utc_now` writes it; it must exist in the calendar."""


class Provenance(BaseModel):
    """Where an artifact came from."""

    model_config = ConfigDict(frozen=True)

    git_commit: str | None = None  # of the checkout that the code runs from; None if it is installed
    git_dirty: bool | None = None  # whether that code differs from it, or has untracked files
    dirty_digest: str | None = None  # of these differences; None without any
    packages: Mapping[str, str] = {}  # versions of the packages that computed results depend on
    python: str = ""
    platform: str = ""
    user: str = ""
    command: str = ""  # the command line, quoted for a shell
    run_id: str | None = None  # of the run that asked for it, with or without Prefect
    flow_run_id: str | None = None  # Prefect's ids, if a flow run asked for it
    deployment_id: str | None = None

    @classmethod
    def collect(
        cls, flow_run_id: str | None = None, deployment_id: str | None = None, run_id: str | None = None
    ) -> "Provenance":
        """Return the provenance of artifacts made by this process; cheap after the first call."""
        own = {"run_id": run_id or flow_run_id, "flow_run_id": flow_run_id, "deployment_id": deployment_id}
        return _of_process().model_copy(update=own)


def utc_now() -> str:
    """Return the current time in the form of records: UTC, ISO 8601, to the microsecond."""
    return as_text(datetime.now(UTC))


def as_text(moment: datetime) -> str:
    """Return a time in UTC in the form of records."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@functools.cache
def _of_process() -> Provenance:
    root = Path(__file__).resolve().parents[2]
    commit, dirty = git_state(root)
    versions = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):  # e.g. running from a checkout that is not installed
            versions[package] = metadata.version(package)
    return Provenance(
        git_commit=commit,
        git_dirty=dirty,
        dirty_digest=digest_of_changes(root) if dirty else None,
        packages=versions,
        python=_PYTHON,
        platform=platform.platform(),
        user=user_name(),
        command=shlex.join(sys.orig_argv),
    )


def user_name() -> str:
    """Return who this process belongs to: a name, or a number where that has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id need not have a name
        return str(os.getuid())


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the checkout `root`; (None, None) if it is none, without calling git."""
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    changes = _git(root, "status", "--porcelain", "--", *_CODE) if commit else None
    return (commit, bool(changes)) if changes is not None else (None, None)


def digest_of_changes(root: Path) -> str | None:
    """Return the digest of what a checkout's code differs from its commit by; None if git cannot tell.

    It covers the changes of tracked files, and the names and bytes of untracked ones.
    """
    changes = _git(root, "diff", "HEAD", "--binary", "--no-color", "--no-ext-diff", "--", *_CODE)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *_CODE)
    if changes is None or new is None:
        return None
    parts = [changes.encode("utf-8", "surrogateescape")]
    for name in filter(None, new.split("\0")):
        parts.append(name.encode())
        with suppress(OSError):  # a link that leads nowhere, or a file that is gone by now
            parts[-1] = f"{name} {digest_bytes((root / name).read_bytes())}".encode()
    return digest_bytes(b"\n".join(parts))


def _git(root: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    command = [git or "", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        # The arguments are constants of this module; nothing a user types gets here.
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


class Machine(BaseModel):
    """The machine that a run was executed on: what it could use, and who executed how many tasks at once."""

    model_config = ConfigDict(frozen=True)

    host: str = ""
    system: str = ""
    python: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    runner: str = ""
    workers: int | None = None

    @classmethod
    def here(cls, runner: str = "", workers: int | None = None) -> "Machine":
        """Return this machine."""
        return _of_machine().model_copy(update={"runner": runner, "workers": workers})


@functools.cache
def _of_machine() -> Machine:
    return Machine(
        host=socket.gethostname(),
        system=platform.platform(),
        python=_PYTHON,
        cores=usable_cores(),
        memory_bytes=total_memory(),
    )


@functools.cache
def installed_packages() -> Mapping[str, str]:
    """Return name → version of the packages that this Python finds, sorted; of two, the first on the path.

    By the names of their folders of metadata: to read these would take longer than a run that finds all.
    """
    packages: dict[str, str] = {}
    for folder in sys.path:
        names = list[str]()
        with suppress(OSError):  # a zip file, or a folder that does not exist
            names = os.listdir(folder or ".")  # noqa: PTH208 - of text, many
        here = [found for found in map(_METADATA.fullmatch, names) if found is not None]
        for name, version in sorted(
            (re.sub(r"[-_.]+", "-", each["name"]).lower(), each["version"]) for each in here
        ):
            packages.setdefault(name, version)
    return dict(sorted(packages.items()))
