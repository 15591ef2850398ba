"""The events of a run, and its description: the fold of its events.

Whoever executes a DAG tells its `RunState` what happens to each task. The state folds that in, and passes an
`Event` on to its listeners: a terminal, a notebook, the run's page at Prefect, OpenLineage, MLflow. They read
the state, as the run's record and the summary of a failure do. Listeners are called from several threads and
must never make a run fail.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tokmill.flows.results import RunRow, group_of
from tokmill.flows.run.dag import Job, Step
from tokmill.flows.run.progress import Group
from tokmill.flows.run.sources import Sources
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import ArtifactRef, Request

What: TypeAlias = Literal[
    "submitted", "started", "progressed", "finished", "failed", "refused", "noted", "awaited"
]
"""`started` does not occur for a cached task; `refused` is a published artifact that did not pass its gate,
which ends the run; before tasks are `awaited`, a server starts."""


class Event(NamedTuple):
    """Something that happened in a run; a task that was submitted has a step and a request."""

    what: What  # it was
    task: str = ""  # the title of the task, e.g. `encode[code/3]`; empty for a note
    group: Group | None = None  # of the task
    step: Step | None = None
    request: Request | None = None
    row: RunRow | None = None  # of a task that has its artifact
    text: str = ""  # a note (a kernel is compiled, a damaged artifact was set aside), or the text of an error


@dataclass
class JobState:
    """A job that was begun: its rows and its failures by index of the step; -1 is the job itself."""

    steps: Sequence[Step] = ()
    rows: dict[int, RunRow] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every step has its artifact."""
        return len(self.rows) == len(self.steps)

    @property
    def in_order(self) -> list[RunRow]:
        """The rows in the order of the steps."""
        return [self.rows[index] for index in sorted(self.rows)]


class RunState:
    """What has become of a run until now.

    Attributes:
        jobs: of its DAG, each after its dependencies.
        begun: those that were begun.
        groups: by name, in the order of their first event.
        sources: its inputs, once they are resolved.
        refs: kind → the run's artifact of that kind, once it has completed.
        listeners: are told of each event.
        lock: is held while an event is folded in, and by whoever reads several things at once.
    """

    def __init__(self, *listeners: "Listener | None") -> None:
        self.listeners = [listener for listener in listeners if listener is not None]
        self.lock = threading.RLock()
        self.jobs: Sequence[Job] = ()
        self.begun: dict[Job, JobState] = {}
        self.groups: dict[str, Group] = {}
        self.sources: Sources | None = None
        self.refs: Mapping[str, ArtifactRef] = {}

    @property
    def rows(self) -> list[RunRow]:
        """The tasks that have succeeded, in the order of the DAG."""
        return [row for _, begun in self._in_order() for row in begun.in_order]

    @property
    def steps(self) -> list[Step]:
        """The steps of the jobs that were begun, in the order of the DAG."""
        return [step for _, begun in self._in_order() for step in begun.steps]

    @property
    def stages(self) -> list[Group]:
        """The groups of the jobs that were begun, in the order of the DAG."""
        names = dict.fromkeys(group_of(step.title) for step in self.steps)
        return [self.groups[name] for name in names if name in self.groups]

    @property
    def failures(self) -> list[tuple[str, Exception]]:
        """The title of each task, or job, that failed, and why, in the order of the DAG."""
        return [
            (begun.steps[index].title if index >= 0 else job.title, begun.failures[index])
            for job, begun in self._in_order()
            for index in sorted(begun.failures)
        ]

    @property
    def not_begun(self) -> list[str]:
        """The titles of the jobs that were not begun."""
        return [job.title for job in self.jobs if job not in self.begun]

    def _in_order(self) -> list[tuple[Job, JobState]]:
        return [(job, self.begun[job]) for job in self.jobs if job in self.begun]

    def begin(self, job: Job) -> JobState:
        """A job begins."""
        return self.begun.setdefault(job, JobState())

    def expect(self, group: str, num_tasks: int) -> None:
        """More tasks of a group are about to be submitted; a group that is not announced has one task."""
        with self.lock:
            self.groups.setdefault(group, Group(group, 0)).expect(num_tasks)

    def expect_steps(self, steps: Sequence[Step]) -> None:
        """Steps are about to be submitted."""
        for group, num_tasks in Counter(group_of(step.title) for step in steps).items():
            self.expect(group, num_tasks)

    def submit(self, step: Step, request: Request) -> None:
        """A task, whose inputs are published, is about to be submitted."""
        self._tell(Event("submitted", step.title, self._group(step.title), step, request))

    def start(self, task: str) -> None:
        """A task begins to work in this process, or is sent to another one."""
        with self._folding("started", task) as group:
            group.start(task)

    def progress(self, task: str, progress: StageProgress) -> None:
        """A long task of this process reports how much of its work is done, at any rate it likes."""
        with self._folding("progressed", task) as group:
            group.report(task, progress)

    def finish(self, row: RunRow) -> None:
        """A task succeeded."""
        with self._folding("finished", row.task, row=row) as group:
            group.finish(row)

    def fail(self, task: str, message: str) -> None:
        """A task failed."""
        with self._folding("failed", task, text=message) as group:
            group.fail(task)

    def refuse(self, task: str, message: str) -> None:
        """A task's artifact did not pass its gate."""
        with self._folding("refused", task, text=message) as group:
            group.refused = True

    def note(self, text: str) -> None:
        """Something is to be said to the user."""
        self._tell(Event("noted", text=text))

    def wait_for(self, what: str) -> None:
        """The run can begin nothing before something has started."""
        self._tell(Event("awaited", text=what))

    @contextmanager
    def _folding(self, what: What, task: str, row: RunRow | None = None, text: str = "") -> Iterator[Group]:
        """Change a task's group in this block, then tell of it."""
        group = self._group(task)
        with self.lock:
            yield group
        self._tell(Event(what, task, group, row=row, text=text))

    def _group(self, task: str) -> Group:
        name = group_of(task)
        with self.lock:
            return self.groups.setdefault(name, Group(name))

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event, self)


Listener: TypeAlias = Callable[[Event, RunState], None]


@contextmanager
def noting_warnings(note: Callable[[str], None]) -> Iterator[None]:
    """Make notes of warnings of `tasks` and `tokenizer` (a kernel is compiled, an artifact is damaged)."""
    notes = logging.Handler(logging.WARNING)
    notes.emit = lambda record: note(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(package) for package in ("tokmill.tasks", "tokmill.tokenizer")]
    for logger in loggers:
        logger.addHandler(notes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(notes)
