"""The machine settings of a run or command: store, workers, memory, and how artifacts are checked.

If a setting is given in several places, the first of these wins: an option, the environment, the profile's
`[execution]`, the default. None of them changes a fingerprint.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

from tokmill.flows.credentials import supply_credentials
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.context import quarter_of_the_ram, usable_cores
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store, Verify
from tokmill.tasks.store.layout import DEFAULT_STORE

if TYPE_CHECKING:  # the profile imports numpy and all stages, which would slow down `tokmill ls`
    from tokmill.flows.profile import Execution

RunnerName: TypeAlias = Literal["threads", "processes", "dask", "ray"]
"""A key of `flows.prefect.runners.RUNNERS`."""

_MOST_THREADS, _MUCH_TEXT = 4, 256 << 20  # with less, processes cost what they save
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def num_seconds(duration: str) -> float:
    """Return the seconds of a duration such as `90s`, `30m`, `1.5h` or `2d`."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


@dataclass(frozen=True)
class Limits:
    """The limits of every task of a run."""

    retries: int = 2  # further attempts after a fault that may pass (`tasks.core.faults.may_pass`)
    pause: float = 5.0  # seconds before the first of them; each further one waits twice as long
    timeout: str | None = None  # how long a stage may run, e.g. `2h`; None for ever
    # the same for single stages, by the name in their tasks' titles; `timeout` for all others
    timeouts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, execution: "Execution") -> Self:
        """Return the limits of a profile's `[execution]`."""
        timeouts = {str(stage): limit for stage, limit in execution.timeouts.items()}
        return cls(execution.retries, execution.retry_pause, execution.timeout, timeouts)

    def of_stage(self, name: str) -> str | None:
        """Return how long a stage may run."""
        return self.timeouts.get(name, self.timeout)


@dataclass(frozen=True)
class Machine:
    """The machine settings of a run."""

    store: str  # URL or folder of the artifacts
    workers: int = 1  # number of parallel tasks
    memory_bytes: int | None = None  # limit of all tasks together, for data that grows with their input
    # how an artifact is checked before it is reused: its files' sizes, or their digests as well
    verify: Verify = "sizes"
    rehash: bool = False  # whether to digest every source file again, even if its size and time are unchanged
    # the task runner, by name; None for threads, and processes where there is much for many cores to do
    runner: RunnerName | None = None
    # of the scheduler of Dask, or of Ray; None for one on this machine, for the length of a run
    address: str | None = None
    limits: Limits = field(default_factory=Limits)  # how long a task may take, and how often it is tried
    refresh: frozenset[str] = frozenset()  # stages whose artifacts are made although the store has them
    # the block that has those for object storage; None if they are in the environment
    credentials: str | None = None

    @classmethod
    def of(
        cls,
        profile: "Execution",
        *,
        store: str | None = None,
        workers: int | None = None,
        memory: str | None = None,
        verify: Verify | None = None,
        rehash: bool = False,
        refresh: Iterable[str] = (),
    ) -> Self:
        """Resolve options against the environment and a profile's `[execution]`."""
        return cls(
            store_url(store, profile),
            workers or profile.workers or usable_cores(),
            memory_of(memory, profile.memory),
            verify or profile.verify,
            rehash or profile.rehash,
            profile.runner,
            profile.address,
            Limits.of(profile),
            _stages(refresh),
            profile.credentials,
        )

    @property
    def task_memory(self) -> int | None:
        """The memory limit of one task; see `tasks.core.context`."""
        return None if self.memory_bytes is None else self.memory_bytes // self.workers

    @property
    def words(self) -> str:
        """What executes the tasks: `2 workers (threads)`."""
        return f"{counted(self.workers, 'worker')} ({self.executors})"

    @property
    def executors(self) -> str:
        """What executes the tasks, as far as it is known before the amount of text is."""
        return self.runner or ("threads or processes" if self._may_need_processes else "threads")

    @property
    def _may_need_processes(self) -> bool:
        return sys.platform == "linux" and min(self.workers, usable_cores()) > _MOST_THREADS

    def needs_processes(self, num_bytes: int) -> bool:
        """Whether the parts of jobs over so much text are not for threads of this process."""
        if self.runner is None:
            return num_bytes >= _MUCH_TEXT and self._may_need_processes
        return self.runner == "processes"

    def open_store(self) -> Store:
        """Open the store."""
        return Store.open(self.store)


def memory_of(option: str | None, profile: str | None = None) -> int:
    """Return the memory of all tasks together: the option, `TOKMILL_MEMORY`, the profile's, or a quarter."""
    size = option or os.environ.get("TOKMILL_MEMORY") or profile
    return num_bytes(size) if size else quarter_of_the_ram()


def open_store(location: str | Path) -> Store:
    """Open a store, which need not exist yet."""
    try:
        return Store.open(location)
    except StoreError as error:
        raise UsageError(str(error)) from error


def writable_store(location: str) -> Store:
    """Open a store for writing; create its folder if it does not exist."""
    store, problem = open_store(location), ""
    try:
        store.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be created ({error.strerror})"
    if not problem and not os.access(store.root, os.W_OK | os.X_OK):
        problem = "cannot be written to"
    if problem:
        raise UsageError(f"store {location} {problem}; name another with --store or TOKMILL_STORE")
    return store


def num_bytes(size: str) -> int:
    """Return the bytes of a size such as `4GB` or `512MiB`."""
    from tokmill.flows.profile import SIZE  # noqa: PLC0415 - as above

    found = re.fullmatch(SIZE, size)
    if found is None:
        raise UsageError(f"memory={size!r} must be a number and a unit from KB to TiB; use e.g. 4GB")
    number, unit = found.groups()
    return int(float(number) * (1024 if "i" in unit else 1000) ** (1 + "KMGT".index(unit[0])))


def store_url(option: str | None, profile: "Execution | None" = None) -> str:
    """Return the location of the store: the option, `TOKMILL_STORE`, the profile's, or the default.

    The credentials that the profile names are in the environment afterwards (`supply_credentials`).
    """
    supply_credentials(profile.credentials if profile else None)
    named = profile.store if profile else None
    return option or os.environ.get("TOKMILL_STORE") or named or DEFAULT_STORE


def _stages(names: Iterable[str]) -> frozenset[str]:
    """Check the names of stages."""
    from tokmill.flows.errors import suggestion  # noqa: PLC0415 - as above
    from tokmill.flows.profile.sections import StageName  # noqa: PLC0415 - as above

    chosen, known = frozenset(names), get_args(StageName)
    for name in sorted(chosen.difference(known)):
        raise UsageError(f"refresh={name!r} is not a stage{suggestion(name, known, known_as='stages')}")
    return chosen
