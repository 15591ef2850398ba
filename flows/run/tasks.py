"""A task, whoever executes it: Prefect's task runners, or threads of this process.

A fault that may pass (a network share, a device, a service) is tried again after a pause; any other is not,
because it would come again. Prefect's own retries are not used: they wait where nothing can interrupt them,
and there are none without Prefect. A stage that runs longer than it may is stopped at the next place where
it looks (`tokenizer.core.stopping`), between two slices of its kernels.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from tokmill.flows.run.machine import Limits, Machine, num_seconds, supply_credentials
from tokmill.tasks.core.context import (
    StageProgress,
    context_value,
    memory_limited_to,
    progress_reported_to,
    remarks_reported_to,
    time_limited_to,
)
from tokmill.tasks.core.errors import TimeLimitError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store import Provenance, Store, Verify
from tokmill.tasks.store.build import Realized
from tokmill.tokenizer.core.stopping import TimeLimitReached, raise_if_stopped


@dataclass(frozen=True)
class TaskSettings:
    """The machine's settings for every task of a run.

    Attributes:
        verify: how thoroughly an existing artifact is checked.
        memory_bytes: memory limit of one task; see `tasks.core.context`.
        provenance: the run's provenance. Tasks do not ask the server for the deployment themselves, because
            one client per task costs more CPU time than the rest of its orchestration.
        limits: how long a stage may take, and how often it is tried.
        refresh: stages whose artifacts are made although the store has them.
        credentials: the block that has those for object storage; see `flows.run.machine`.
    """

    verify: Verify = "sizes"
    memory_bytes: int | None = None
    provenance: Provenance | None = None
    limits: Limits = field(default_factory=Limits)
    refresh: frozenset[str] = frozenset()
    credentials: str | None = None

    @classmethod
    def of(cls, machine: Machine, provenance: Provenance) -> Self:
        """Return the settings of a run on a machine."""
        share = machine.memory_bytes // machine.workers
        return cls(machine.verify, share, provenance, machine.limits, machine.refresh, machine.credentials)


@dataclass(frozen=True)
class TaskSpec:
    """The argument of a task.

    Attributes:
        request: for the artifact.
        store: the folder or URL of artifacts; by it, a worker of another machine opens the same store.
        settings: of the run.
    """

    request: Request
    store: str
    settings: TaskSettings

    def lookup(self, store: Store) -> ArtifactRef | None:
        """Return the artifact if its store has it, under the name of this request; else None."""
        if self.request.stage.task in self.settings.refresh:
            return None
        ref = store.lookup(self.request, verify=self.settings.verify)
        if ref is not None:
            store.label(ref, self.request.name)
        return ref


# None in a task that runs in another process.
CALLBACKS: ContextVar["TaskCallbacks | None"] = ContextVar("callbacks", default=None)


@dataclass(frozen=True)
class TaskCallbacks:
    """Callbacks for a task's start, progress and end; each receives the task's title.

    `on_end` also receives how the task got its artifact, which Prefect's states do not record.
    """

    on_start: Callable[[str], None]
    on_progress: Callable[[str, StageProgress], None]
    on_end: Callable[[str, How], None]

    def installed(self) -> AbstractContextManager[None]:
        """Install the callbacks for the tasks that are submitted in this block."""
        return context_value(CALLBACKS, self)


class Ended(NamedTuple):
    """What became of a submitted task.

    Attributes:
        outcome: its artifact, or why there is none; None if it was not begun, since one before it failed.
        cached: whether nothing was done.
    """

    outcome: ArtifactRef | BaseException | None
    cached: bool = False


class Submitted(Protocol):
    """A task that was submitted."""

    def add_done_callback(self, callback: Callable[[Any], None], /) -> None:
        """Have the callback called with this when the task has ended."""


class Asked(NamedTuple):
    """A task that is to be executed.

    Attributes:
        spec: its argument.
        title: its name, e.g. `encode[english/3]`.
        after: submitted tasks that it depends on; they have ended.
    """

    spec: TaskSpec
    title: str
    after: Sequence[Any]


class Tasks(Protocol):
    """Those who execute tasks: Prefect, or threads of this process."""

    def submit(self, asked: Sequence[Asked]) -> Sequence[Submitted]:
        """Have the tasks of a job executed; return one for each, in order."""

    def ended(self, submitted: Any) -> Ended:
        """Return what became of a task that has ended."""

    def paused(self) -> BaseException | None:
        """Return what to raise, once the running tasks have ended, if a person has paused the run."""


_LOG = logging.getLogger("tokmill.tasks")  # whose warnings a run shows
_LOOK_SECONDS = 0.1
_never = threading.Event()


def perform(spec: TaskSpec, title: str, report: Callable[[str], None]) -> Realized:
    """Publish a task's artifact, unless the store has it.

    Args:
        spec: what is requested, and where it goes.
        title: of the task; the callbacks are told of it.
        report: called with messages, and with the stage's remarks.

    Raises:
        TaskError, TokenizerError: the stage's parameters or inputs are invalid.
        TimeLimitError: the stage ran for longer than it may.
        StopRequested: the run is being stopped (`tokenizer.core.stopping`).
    """
    raise_if_stopped()
    supply_credentials(spec.settings.credentials)
    callbacks = CALLBACKS.get()
    if callbacks:
        callbacks.on_start(title)
    watcher = partial(callbacks.on_progress, title) if callbacks else None
    remarks = remarks_reported_to(report)
    with memory_limited_to(spec.settings.memory_bytes), progress_reported_to(watcher), remarks:
        realized = _realized(spec, title, report)
    if callbacks:
        callbacks.on_end(title, realized.how)
    return realized


def _realized(spec: TaskSpec, title: str, report: Callable[[str], None]) -> Realized:
    """Realize a task's request in the first attempt that succeeds; log the others as warnings.

    Raises:
        TimeLimitError: the stage ran for longer than it may.
        Exception: that of the last attempt, or one that would come again.
        StopRequested: a stop was requested.
    """
    settings, stage = spec.settings, spec.request.stage.task
    limits, limit = settings.limits, settings.limits.of_stage(stage)
    number, pause = 1, limits.pause
    while True:
        try:
            with time_limited_to(None if limit is None else num_seconds(limit)):
                return Store.open(spec.store).realize(
                    spec.request,
                    provenance=settings.provenance,
                    report=report,
                    verify=settings.verify,
                    refresh=stage in settings.refresh,
                )
        except TimeLimitReached as reached:
            raise TimeLimitError(
                f"{stage}: it was stopped after {limit}, its time limit; raise execution.timeouts.{stage} "
                "(or execution.timeout), or give it less text or more cores"
            ) from reached
        except Exception as error:
            raise_if_stopped()  # a query that was interrupted is no failure
            if number > limits.retries or not may_pass(error):
                raise
            attempt = f"attempt {number} of {limits.retries + 1}"
            _LOG.warning("%s: %s failed (%s); the next is in %g s", title, attempt, error, pause)
        _wait(pause)
        number, pause = number + 1, 2 * pause


def _wait(seconds: float) -> None:
    while seconds > 0:
        raise_if_stopped()
        _never.wait(min(seconds, _LOOK_SECONDS))
        seconds -= _LOOK_SECONDS
    raise_if_stopped()
