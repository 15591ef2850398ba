"""What the executor asks of those who execute tasks: Prefect's task runners, or threads of this process."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tokmill.flows.run.limits import Limits
from tokmill.tasks.core.context import StageProgress, context_value
from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store import Provenance, Verify


@dataclass(frozen=True)
class TaskSpec:
    """The argument of a task: a request, the store to publish its artifact in, and the machine's limits.

    Attributes:
        request: for the artifact.
        store: the folder or URL of artifacts; by it, a worker of another machine opens the same store.
        verify: how thoroughly an existing artifact is checked.
        memory_bytes: memory limit of the stage; see `tasks.core.context`.
        provenance: the run's provenance. Tasks do not ask the server for the deployment themselves, because
            one client per task costs more CPU time than the rest of its orchestration.
        limits: how long the stage may take, and how often it is tried.
        telling: where a task of another process tells of itself, below the store; None in this process.
        refresh: whether the artifact is made although the store has it.
        credentials: the block that has those for object storage; see `flows.run.credentials`.
    """

    request: Request
    store: str
    verify: Verify = "sizes"
    memory_bytes: int | None = None
    provenance: Provenance | None = None
    limits: Limits = field(default_factory=Limits)
    telling: str | None = None
    refresh: bool = False
    credentials: str | None = None


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
        how, seconds: how it got the artifact, and in what time, if it ran where no callback reaches.
    """

    outcome: ArtifactRef | BaseException | None
    cached: bool = False
    how: How | None = None
    seconds: float = 0.0


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
