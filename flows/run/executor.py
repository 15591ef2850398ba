"""Runs the jobs of a DAG as tasks, on Prefect or without it.

A job is submitted as soon as its dependencies are done, so independent branches (the audit; scores, mixture
and packing) run in parallel on the given `Tasks`. All scheduling happens in the thread that calls `run`:
it waits for the next task to end and submits the jobs that become ready. A task never waits for another one
inside a worker, so a single worker is enough.

After a failure no job is submitted any more; submitted tasks still finish, and their artifacts stay
published. Then the first failure, in the order of the DAG, is raised. A rerun only has to make what failed
and what depends on it. A run that is paused ends in the same way, so that no work is lost.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import NamedTuple

from tokmill.flows.errors import RunError
from tokmill.flows.process import clear_frames
from tokmill.flows.results import RunResult, RunRow, Standing, group_of
from tokmill.flows.run.dag import Dag, Done, Job, Node, Step, references
from tokmill.flows.run.progress import Reporter
from tokmill.flows.run.tasks import Asked, Ended, Submitted, TaskCallbacks, Tasks, TaskSettings, TaskSpec
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import hold
from tokmill.tasks.store.record import Record


class _End(NamedTuple):
    """How a task got its artifact, and when."""

    how: How
    at: float


class Executor:
    """Makes the artifacts of a DAG.

    Attributes:
        rows: the outcome of each task, in the order of the DAG; complete after `run` has returned.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        reporter: Reporter,
        settings: TaskSettings = TaskSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.reporter = reporter
        self.settings = settings
        self.rows: list[RunRow] = []
        self._jobs: Sequence[Job] = ()
        self._began: dict[str, float] = {}
        self._ended: dict[str, _End] = {}
        self._started: dict[Job, Started] = {}
        self._failed = False
        self._done: dict[Job, Sequence[Node]] = {}
        self._running: dict[Submitted, tuple[Job, int]] = {}
        self._completed: SimpleQueue[Submitted] = SimpleQueue()
        self._futures: dict[ArtifactRef, Submitted] = {}

    def run(self, jobs: Sequence[Job]) -> Done:
        """Run all jobs and return their artifacts.

        Args:
            jobs: each after its dependencies.

        Raises:
            Pause: Prefect's, if the run was paused.
            RunError: a task failed; the message is the task's title and the message of its error.
            TaskError: an artifact that lists the parts of a job cannot be read, or a job's check failed.
        """
        self._jobs = waiting = jobs
        while True:
            held = self._failed or self.tasks.paused() is not None
            for job in waiting:
                if not held and all(needed in self._done for needed in job.dependencies):
                    self._start(job)
            if not self._running:
                break
            waiting = [job for job in waiting if job not in self._started]
            self._finish(self._completed.get())
        paused = self.tasks.paused() if len(self._done) < len(jobs) else None
        if paused is not None:
            raise paused
        self._raise_first()
        self.rows = [row for job in jobs for row in self._started[job].in_order]
        return self._done

    def rows_so_far(self) -> Sequence[RunRow]:
        """Return the outcome of each task that has ended by now, also of a run that failed."""
        return [row for started in list(self._started.values()) for row in started.in_order]

    def steps_so_far(self) -> Sequence[Step]:
        """Return the steps of the jobs that were begun."""
        return [step for started in list(self._started.values()) for step in started.steps]

    def standing(self) -> Standing:
        """Return what has become of the jobs until now."""
        begun = [job for job in self._jobs if job in self._started]
        groups = Counter(group_of(step.title) for job in begun for step in self._started[job].steps)
        not_begun = [job.title for job in self._jobs if job not in self._started]
        rows = [row for job in begun for row in self._started[job].in_order]
        return Standing(rows, self._titled_failures(begun), groups, not_begun)

    def _titled_failures(self, begun: Sequence[Job]) -> list[tuple[str, Exception]]:
        return [
            (self._started[job].steps[index].title if index >= 0 else job.title, failures[index])
            for job in begun
            for failures in [self._started[job].failures]
            for index in sorted(failures)
        ]

    def _start(self, job: Job) -> None:
        progress = self._started[job] = Started()
        try:
            progress.steps = job.steps(self._done)
            hold([needed for step in progress.steps for needed in self._needed(step)])
            for group, num_tasks in Counter(group_of(step.title) for step in progress.steps).items():
                self.reporter.expect(group, num_tasks)
            for step in progress.steps:
                self.reporter.on_submit(step)
            with TaskCallbacks(self._on_start, self.reporter.on_progress, self._on_end).installed():
                submitted = self.tasks.submit([self._asked(step) for step in progress.steps])
        except Exception as error:  # raised after the running tasks have ended
            self._fail(job, -1, error)
        else:
            for index, future in enumerate(submitted):
                self._running[future] = (job, index)
                future.add_done_callback(self._completed.put)
            self._close(job)  # a job without parts is done already

    def _needed(self, step: Step) -> list[str]:
        """Return the fingerprints of a step's artifact and of its inputs, which a lease is to protect."""
        return [self.store.fingerprint(step.request()), *(ref.fingerprint for ref in references(step))]

    def _asked(self, step: Step) -> Asked:
        spec = TaskSpec(step.request(), self.store.location, self.settings)
        parents = {ref: self._futures[ref] for ref in references(step) if ref in self._futures}
        return Asked(spec, step.title, list(parents.values()))

    def _finish(self, future: Submitted) -> None:
        """Record a task that ended, and close its job if it was the last one."""
        job, index = self._running.pop(future)
        progress = self._started[job]
        end = self._end(progress.steps[index], future)
        if isinstance(end, RunRow):
            progress.rows[index] = end
            self._futures[end.ref] = future
            self._close(job)
        elif end is not None:
            step = progress.steps[index]
            failure = RunError(titled(step, str(end)), step.title)
            failure.__cause__ = end
            self._fail(job, index, failure)

    def _fail(self, job: Job, index: int, failure: Exception) -> None:
        self._started[job].failures[index] = failure
        self._failed = True

    def _close(self, job: Job) -> None:
        """Mark a job as done if all its artifacts are published and accepted."""
        progress = self._started[job]
        if progress.complete:
            refs = [row.ref for row in progress.in_order]
            try:
                job.accept(refs)
            except Exception as error:
                self._fail(job, -1, error)
                self.reporter.on_refuse(job.title, str(error))
            else:
                self._done[job] = refs

    def _end(self, step: Step, future: Submitted) -> RunRow | BaseException | None:
        """Report the end of a task, and return its row or its error; None if it was not begun."""
        ended = self.tasks.ended(future)
        outcome = ended.outcome
        if outcome is None:
            return None
        if isinstance(outcome, BaseException):
            self.reporter.on_fail(step.title, str(outcome))
            return outcome
        record = self.store.record(outcome)
        how, began, seconds = self._times(step.title, ended, record)
        row = RunRow(step.title, outcome, how, seconds, record.metrics, began, record.timings.peak_bytes)
        self.reporter.on_finish(row)
        return row

    def _times(self, title: str, ended: Ended, record: Record) -> tuple[How, float, float]:
        """Return how a task got its artifact, when it began, and how many seconds it took."""
        now = time.monotonic()
        if ended.cached:
            return "cached", now, 0.0
        if title in self._ended:
            how, at = self._ended[title]
            began = self._began.get(title, at)
            return how, began, at - began
        # it ran in another process, where no callback reaches
        own, its = self.settings.provenance, record.provenance
        if own is None or own.run_id == its.run_id:
            return "made", now - record.timings.seconds, record.timings.seconds
        return "cached", now, 0.0

    def _on_start(self, title: str) -> None:
        self._began[title] = time.monotonic()
        self.reporter.on_start(title)

    def _on_end(self, title: str, how: How) -> None:
        self._ended[title] = _End(how, time.monotonic())

    def _raise_first(self) -> None:
        """Raise the first failure in the order of the DAG; clear the frames of the others."""
        failures = [failure for _, failure in self.standing().failures]
        for failure in failures[1:]:
            clear_frames(failure)
        if failures:
            raise failures[0]


_SOURCE = re.compile(r"\[(.+)/\d+\]$")  # a task over shards: `encode[english/3]`


@dataclass
class Started:
    """A started job: its rows and its failures by index of the step; -1 is the job itself."""

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


def titled(step: Step, message: str) -> str:
    """Put the task's title before a message, in place of the message's own stage and source."""
    rest = message.removeprefix(f"{step.stage.task}: ")
    source = _SOURCE.search(step.title)
    if source is not None:
        rest = rest.removeprefix(f"source '{source[1]}': ")
    return f"{step.title}: {rest}"


def result_of(run_id: str, dag: Dag, done: Done, rows: Sequence[RunRow]) -> RunResult:
    """Return the result of a run whose jobs are done."""
    made = dag.artifacts(done)
    return RunResult(run_id, rows, {kind: ref for kind, ref in made.items() if isinstance(ref, ArtifactRef)})
