"""A task, and those that execute tasks: threads of this process here, Prefect's task runners elsewhere.

Such a thread may have a process of its own work for it (`flows.run.processes`).

A fault that may pass (a network share, a device, a service) is tried again after a pause; any other is not,
because it would come again. A stage that runs longer than it may is stopped at the next place where it looks
(`tokenizer.core.stopping`), between two slices of its kernels.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple, Protocol, Self, TypeAlias

from tokmill.flows.credentials import supply_credentials
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine, num_seconds
from tokmill.tasks.core.context import (
    ProgressCallback,
    memory_limited_to,
    progress_reported_to,
    remarks_reported_to,
    time_limited_to,
)
from tokmill.tasks.core.errors import TimeLimitError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.build import Realized
from tokmill.tasks.store.tables import Report
from tokmill.tokenizer.core.stopping import TimeLimitReached, allow_work, raise_if_stopped, request_stop

STATE: ContextVar[RunState | None] = ContextVar("state", default=None)
"""The run that is told of tasks; None in a task that another process executes."""
_LOG = logging.getLogger("tokmill.tasks")  # whose warnings a run shows
_LOOK_SECONDS = 0.1
_never = threading.Event()


@dataclass(frozen=True)
class TaskSpec:
    """A task that is to be executed, here or on another machine."""

    title: str  # e.g. `encode[english/3]`
    request: Request  # for the artifact
    machine: Machine  # the run's settings; by its store, a worker of another machine opens the same one
    # the run's. Tasks do not ask the server for the deployment themselves, because one client per task costs
    # more CPU time than the rest of its orchestration
    provenance: Provenance | None = None
    needs: Sequence[ArtifactRef] = ()  # the artifacts that it depends on
    is_part: bool = False  # one of several of its job

    @property
    def refresh(self) -> bool:
        """Whether the artifact is made although the store has it."""
        return self.request.stage.task in self.machine.refresh

    def lookup(self, store: Store) -> ArtifactRef | None:
        """Return the artifact if its store has it, under the name of this request; else None."""
        ref = None if self.refresh else store.lookup(self.request, verify=self.machine.verify)
        if ref is not None:
            store.label(ref, self.request.name)
        return ref


class Ended(NamedTuple):
    """What became of a task."""

    # its artifact, or why there is none; None if it was not begun, since one before it failed
    outcome: ArtifactRef | BaseException | None
    how: How | None = None  # it got its artifact; None if it has none
    began: float = 0.0  # when, in seconds of a monotonic clock
    seconds: float = 0.0  # that it took


class Tasks(Protocol):
    """Those who execute tasks."""

    def submit(self, specs: Sequence[TaskSpec]) -> None:
        """Have the tasks of a job executed."""

    def wait(self) -> tuple[str, Ended]:
        """Wait until a submitted task has ended; return its title, and what became of it."""

    def paused(self) -> BaseException | None:
        """Return what to raise, once the running tasks have ended, if a person has paused the run."""


class LocalTasks:
    """Executes tasks in threads of this process; with one worker in the thread that waits for them.

    The end of the block waits for what was submitted; an interruption stops that first. The process lives on,
    perhaps as a notebook, so work is allowed again afterwards.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, "tokmill") if workers > 1 else None
        self._waiting: deque[TaskSpec] = deque()
        self._ended: SimpleQueue[tuple[str, Ended]] = SimpleQueue()

    def __enter__(self) -> Self:
        allow_work()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        if interrupted:
            request_stop()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=interrupted)
        if interrupted:
            allow_work()

    def submit(self, specs: Sequence[TaskSpec]) -> None:
        """Have the tasks of a job executed."""
        if self._pool is None:
            self._waiting += specs
            return
        for spec in specs:
            self._pool.submit(copy_context().run, self._put, spec)

    def wait(self) -> tuple[str, Ended]:
        """Wait until a submitted task has ended; return its title, and what became of it."""
        if self._pool is not None:
            return self._ended.get()
        spec = self._waiting.popleft()
        try:
            return spec.title, perform(spec)
        except Exception as error:
            return spec.title, Ended(error)

    def _put(self, spec: TaskSpec) -> None:
        try:
            self._ended.put((spec.title, perform(spec)))
        except BaseException as error:
            self._ended.put((spec.title, Ended(error)))

    def paused(self) -> None:
        """Return None, since nobody can pause such a run."""


def attempt(spec: TaskSpec, watch: ProgressCallback | None, report: Report) -> Realized:
    """Publish a task's artifact in this process, unless the store has it by now."""
    machine = spec.machine
    limit = machine.limits.of_stage(spec.request.stage.task)
    with (
        memory_limited_to(machine.task_memory),
        progress_reported_to(watch),
        remarks_reported_to(report),
        time_limited_to(None if limit is None else num_seconds(limit)),
    ):
        return Store.open(machine.store).realize(
            spec.request,
            provenance=spec.provenance,
            report=report,
            verify=machine.verify,
            refresh=spec.refresh,
        )


Attempt: TypeAlias = Callable[[TaskSpec, ProgressCallback | None, Report], Realized]
ATTEMPT: ContextVar[Attempt] = ContextVar("attempt", default=attempt)
"""What attempts one of several parts of a job: this process, or others (`flows.run.processes`)."""


def perform(spec: TaskSpec, report: Report = lambda message: None) -> Ended:
    """Publish a task's artifact, unless the store has it, in the first attempt that succeeds.

    Messages and the stage's remarks are reported.
    """
    raise_if_stopped()
    machine, stage, state = spec.machine, spec.request.stage.task, STATE.get()
    supply_credentials(machine.credentials)
    store, began = Store.open(machine.store), time.monotonic()
    known = spec.lookup(store)
    if known is not None:
        return Ended(known, "cached", began)
    if state is not None:
        state.start(spec.title)
    watch = None if state is None else partial(state.progress, spec.title)
    made = ATTEMPT.get() if spec.is_part else attempt
    limits, limit = machine.limits, machine.limits.of_stage(stage)
    number, pause = 1, limits.pause
    while True:
        try:
            realized = made(spec, watch, report)
            return Ended(realized.ref, realized.how, began, time.monotonic() - began)
        except TimeLimitReached as reached:
            raise TimeLimitError(
                f"{stage}: it was stopped after {limit}, its time limit; raise execution.timeouts.{stage} "
                "(or execution.timeout), or give it less text or more cores"
            ) from reached
        except Exception as error:
            raise_if_stopped()  # a query that was interrupted is no failure
            if number > limits.retries or not may_pass(error):
                raise
            which = f"attempt {number} of {limits.retries + 1}"
            _LOG.warning("%s: %s failed (%s); the next is in %g s", spec.title, which, error, pause)
        _wait(pause)
        number, pause = number + 1, 2 * pause


def _wait(seconds: float) -> None:
    while seconds > 0:
        raise_if_stopped()
        _never.wait(min(seconds, _LOOK_SECONDS))
        seconds -= _LOOK_SECONDS
    raise_if_stopped()
