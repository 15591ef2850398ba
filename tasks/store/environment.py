"""What a run was executed with: the machine, and the packages of its Python.

Packages are found by the names of their folders of metadata, in the order of the search path, since to read
the metadata of hundreds of packages would take longer than a run that finds everything in the store.
"""

import functools
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.context import total_memory

_METADATA = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>[^-]+)\.(dist|egg)-info")


class Machine(BaseModel):
    """The machine that a run was executed on, and how it used it.

    Attributes:
        host: its name.
        system: operating system and architecture.
        python: implementation and version.
        cores: those that the process could use.
        memory_bytes: the memory of the machine, or the limit of the process's control group.
        runner: who executed the tasks: threads, processes, dask, ray.
        workers: tasks at a time.
    """

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
        return _of_process().model_copy(update={"runner": runner, "workers": workers})


@functools.cache
def _of_process() -> Machine:
    return Machine(
        host=socket.gethostname(),
        system=platform.platform(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cores=_cores(),
        memory_bytes=total_memory(),
    )


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


@functools.cache
def installed_packages() -> Mapping[str, str]:
    """Return name → version of the packages that this Python finds, sorted; of two, the first on the path."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for name, version in sorted(_packages_in(folder)):
            found.setdefault(name, version)
    return dict(sorted(found.items()))


def _packages_in(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208 - of text, many
    except OSError:  # a zip file, or a folder that does not exist
        return
    for name in names:
        found = _METADATA.fullmatch(name)
        if found is not None:
            yield re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"]
