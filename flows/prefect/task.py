"""Executes the tasks of a run as Prefect's: the only link between stages and Prefect's engine.

The store decides which tasks are cached, and Prefect shows it: a task whose artifacts are all in the store
ends in a state named `Cached`, no matter which run made them. Prefect itself caches nothing, and keeps no
results.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import RunInput, TaskRunResult
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Completed
from prefect.task_runners import TaskRunner

from tokmill.flows.errors import FlowError, RunError
from tokmill.flows.run.tasks import STATE, Ended, TaskSpec, perform
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.core.stopping import StopRequested, request_stop

_FEW: Final = 16
_GROUPS_PER_WORKER: Final = 4
_ASK_SECONDS: Final = 10.0
_MISTAKES = (FlowError, TaskError, TokenizerError)
_PAUSED: Final = "the run was paused before this was begun"
_STOPPED: Final = "the run was stopped before this was done; whatever was published before is kept"

T = TypeVar("T")
Future: TypeAlias = PrefectFuture[list[Ended]]
held = threading.Event()
"""Set while a paused run begins nothing more in this process."""


class Sealed:
    """Holds a task's argument so that Prefect does not look for futures in it, field by field.

    Prefect's own mark for that (`quote`) does not survive the way to Dask and Ray. `here` is whether the task
    is in the process of its run.
    """

    def __init__(self, specs: Sequence[TaskSpec], *, here: bool = True) -> None:
        self.specs = specs
        self.here = here

    @property
    def title(self) -> str:
        """What people see of the task run, e.g. `encode[english/3]`."""
        return group_title([spec.title for spec in self.specs])


@task(cache_policy=NO_CACHE, persist_result=False)
def realize(sealed: Sealed) -> Any:
    """Publish the requested artifacts, unless the store has them; what a stop ends is Cancelled.

    Raises:
        GroupError: one of several failed.
        Exception: otherwise as `flows.run.tasks.perform`.
    """
    logger, ends, asked = get_run_logger(), list[Ended](), time.monotonic()
    for spec in sealed.specs:
        if is_held():
            return Cancelled(message=_PAUSED)
        if not sealed.here and time.monotonic() - asked > _ASK_SECONDS:
            if _is_over(spec):
                return Cancelled(message=_STOPPED)
            asked = time.monotonic()
        try:
            ends.append(perform(spec, logger.info))
        except StopRequested:
            return Cancelled(message=_STOPPED)
        except Exception as error:
            if len(sealed.specs) == 1:
                raise
            raise GroupError(spec.title, ends, error) from error
    return Completed(name="Cached" if all(each.how == "cached" for each in ends) else None, data=ends)


def is_held() -> bool:
    """Whether tasks of this process are not to begin (Prefect pickles what `realize` names)."""
    return held.is_set()


def _is_over(spec: TaskSpec) -> bool:
    """Whether the run of a task of another process or machine has ended, or is to end."""
    provenance = spec.provenance
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(provenance.flow_run_id if provenance else None)).state
    except Exception:  # a server that does not answer has asked for nothing
        return False
    return state is not None and (state.is_final() or state.is_cancelling())


def _title(parameters: dict[str, Any]) -> str:
    return str(parameters["sealed"].title)


@lru_cache(maxsize=64)  # to make one costs Prefect more than a millisecond
def as_task(name: str) -> Task[..., list[Ended]]:
    """Return the Prefect task of a stage."""
    named: Any = _title  # Prefect's type of it has a method that no function has
    return realize.with_options(name=name, task_run_name=named)


@dataclass(frozen=True)
class PrefectTasks:
    """Executes tasks on one of Prefect's task runners, in groups (`divided`); `here` in this process.

    `task_runs` has the task run of its group by the title of each submitted task.
    """

    runner: TaskRunner[Any]
    workers: int
    here: bool
    task_runs: dict[str, UUID] = field(default_factory=dict)
    _made: dict[ArtifactRef, UUID] = field(default_factory=dict)
    _futures: SimpleQueue[tuple[Future, Sequence[TaskSpec]]] = field(default_factory=SimpleQueue)
    _ended: deque[tuple[str, Ended]] = field(default_factory=deque)

    def submit(self, specs: Sequence[TaskSpec]) -> None:
        """Have the tasks of a job executed."""
        for group in divided(specs, self.workers):
            self._submit(group)

    def _submit(self, specs: Sequence[TaskSpec]) -> None:
        # all of them have ended, so the page is told of them, and nobody has to wait, or to be sent them
        before = {self._made[ref] for spec in specs for ref in spec.needs if ref in self._made}
        edges: set[RunInput] = {TaskRunResult(id=task_run_id) for task_run_id in before}
        task = as_task(specs[0].request.stage.task)
        sealed = {"sealed": Sealed(specs, here=self.here)}
        future: Future = self.runner.submit(task, sealed, dependencies={"sealed": edges})
        self.task_runs.update({spec.title: future.task_run_id for spec in specs})
        state = STATE.get()
        if state is not None and not self.here:
            state.start(specs[0].title)  # nothing is heard of it until it ends
        future.add_done_callback(lambda ended: self._futures.put((ended, specs)))

    def wait(self) -> tuple[str, Ended]:
        """Wait until a submitted task has ended; return its title, and what became of it."""
        if not self._ended:
            future, specs = self._futures.get()
            for spec, ended in zip(specs, _outcomes(future, len(specs)), strict=True):
                if isinstance(ended.outcome, ArtifactRef):
                    self._made[ended.outcome] = future.task_run_id
                began = ended.began if self.here else time.monotonic() - ended.seconds  # another clock
                self._ended.append((spec.title, ended._replace(began=began)))
        return self._ended.popleft()

    def stop(self) -> None:
        """Have the tasks of this process stop soon; others ask the server, or end with their processes."""
        if self.here:
            request_stop()

    def paused(self) -> Pause | None:
        """Return what to raise if a person has paused the run; what has not begun here is held back."""
        context = FlowRunContext.get()
        asked = context.flow_run_suspension_request.get_state() if context else None
        if asked is None:
            return None
        held.set()
        return Pause(state=asked)


def _outcomes(future: Future, number: int) -> list[Ended]:
    """Return what became of the tasks of a group."""
    try:
        future.wait()  # it has ended, but may not have its final state until it is waited for
    except Pause:  # Prefect held back a task of this process
        return [Ended(None)] * number
    state, outcome = future.state, future.result(raise_on_failure=False)
    if state.is_completed():
        return outcome
    if state.is_cancelled():  # held back by `paused`; else its process was told to stop, for another run
        return [Ended(None if state.message == _PAUSED else RunError(_STOPPED))] * number
    if isinstance(outcome, GroupError):
        return [*outcome.ends, Ended(outcome.error), *[Ended(None)] * (number - len(outcome.ends) - 1)]
    error = outcome if isinstance(outcome, BaseException) else RunError(str(state.message))
    return [Ended(error)] * number


class GroupError(Exception):
    """A step of a group failed; those before it have ended (`ends`), and those after it were not begun."""

    def __init__(self, title: str, ends: Sequence[Ended], error: Exception) -> None:
        super().__init__(title, ends, error)  # so that it can be pickled
        self.title = title
        self.ends = ends
        self.error = error

    def __str__(self) -> str:
        """Return what Prefect shows: which step failed, and why."""
        return f"{self.title}: {self.error}"


def divided(items: Sequence[T], workers: int) -> Iterator[Sequence[T]]:
    """Yield items in groups of neighbours, each by itself if there are few.

    There are at least four groups per worker, so that at the end of a job a worker is idle for a quarter of
    its time at most.
    """
    most = max(_FEW, _GROUPS_PER_WORKER * workers)
    size = -(-len(items) // most) or 1
    for first in range(0, len(items), size):
        yield items[first : first + size]


def group_title(titles: Sequence[str]) -> str:
    """Return the title of a group: `encode[english/0-31]`; across sources `encode[english/90 … code/3]`."""
    first, last = titles[0], titles[-1]
    if len(titles) == 1:
        return first
    stage, _, start = first.rstrip("]").partition("[")
    stop = last.rstrip("]").partition("[")[2]
    other, _, until = stop.rpartition("/")
    alike = start.rpartition("/")[0] == other
    return f"{stage}[{start}-{until}]" if alike else f"{stage}[{start} … {stop}]"


def keep_logs_plain() -> None:
    """Have the logs of this process's runs show a mistake by its message alone; may be called again."""
    for runs in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(runs).addFilter(_without_mistakes_tracebacks)


def _without_mistakes_tracebacks(record: logging.LogRecord) -> bool:
    """Replace the traceback of a mistake by its message; every record passes."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and is_mistake(error):
        record.msg, record.args, record.exc_info, record.exc_text = str(error), None, None, None
    return True


def is_mistake(error: BaseException) -> bool:
    """Whether a person can mend what an error is about: it, and what it was raised for, are ours."""
    if isinstance(error, GroupError):
        return is_mistake(error.error)
    if isinstance(error, RunError) and error.__cause__ is not None:
        return is_mistake(error.__cause__)
    return isinstance(error, _MISTAKES) and not isinstance(error, LawError)


keep_logs_plain()  # also in a process of a pool, which imports this for its first task
