"""Runs the jobs of a DAG as tasks, in this process or elsewhere.

A job is submitted once its dependencies are done, in the thread that calls `run`; a task never waits for
another one inside a worker. After a failure, or a pause, nothing is submitted any more; what was submitted
finishes and stays published, then the first failure in the order of the DAG is raised.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from tokmill.flows.errors import RunError
from tokmill.flows.process import clear_frames
from tokmill.flows.profile import Profile
from tokmill.flows.results import RunRow
from tokmill.flows.run.dag import Dag, Done, Job, Node, Step, references
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.processes import parts_elsewhere
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.target import Target
from tokmill.flows.run.tasks import STATE, Ended, Tasks, TaskSpec
from tokmill.tasks.core.context import context_value
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.leases import hold

_SOURCE = re.compile(r"\[(.+)/\d+\]$")  # a task over shards: `encode[english/3]`


def composed(profile: Profile, target: Target, store: Store, machine: Machine, state: RunState) -> Dag:
    """Return the DAG of what is asked of a profile; raises for its sources, which `state` is told of."""
    state.sources = resolve_sources(profile, store, rehash=machine.rehash)
    return target.compose(profile, store, state.sources)


class Executor:
    """Makes the artifacts of a DAG.

    Attributes:
        state: is told of all that happens.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        state: RunState,
        machine: Machine | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.state = state
        self._machine = replace(machine or Machine(""), store=store.location)
        self._provenance = provenance
        self._done: dict[Job, Sequence[Node]] = {}
        self._running: dict[str, tuple[Job, int]] = {}
        self._failed = False

    def run(self, jobs: Sequence[Job]) -> Done:
        """Run all jobs and return their artifacts."""
        self.state.jobs = waiting = jobs
        sources = self.state.sources.files if self.state.sources else ()
        num_bytes = sum(file.value["size"] for file in sources)
        with context_value(STATE, self.state), parts_elsewhere(self._machine, num_bytes):
            while True:
                held = self._failed or self.tasks.paused() is not None
                for job in waiting:
                    if not held and all(needed in self._done for needed in job.dependencies):
                        self._start(job)
                if not self._running:
                    break
                waiting = [job for job in waiting if job not in self.state.begun]
                self._finish(*self.tasks.wait())
        paused = self.tasks.paused() if len(self._done) < len(jobs) else None
        if paused is not None:
            raise paused
        self._raise_first()
        return self._done

    def _start(self, job: Job) -> None:
        begun = self.state.begin(job)
        try:
            begun.steps = job.steps(self._done)
            specs = [self._spec(step, is_part=len(begun.steps) > 1) for step in begun.steps]
            hold([fingerprint for spec in specs for fingerprint in self._needed(spec)])
            self.state.expect_steps(begun.steps)
            for step, spec in zip(begun.steps, specs, strict=True):
                self.state.submit(step, spec.request)
            by_size = sorted(zip(begun.steps, specs, strict=True), key=lambda pair: -pair[0].num_bytes)
            self.tasks.submit([spec for _, spec in by_size])
        except Exception as error:  # raised after the running tasks have ended
            self._fail(job, -1, error)
        else:
            self._running |= {step.title: (job, index) for index, step in enumerate(begun.steps)}
            self._close(job)  # a job without parts is done already

    def _spec(self, step: Step, *, is_part: bool) -> TaskSpec:
        needs = references(step)
        return TaskSpec(step.title, step.request(), self._machine, self._provenance, needs, is_part)

    def _needed(self, spec: TaskSpec) -> list[str]:
        """Return the fingerprints of a task's artifact and of its inputs, which a lease is to protect."""
        return [self.store.fingerprint(spec.request), *(ref.fingerprint for ref in spec.needs)]

    def _finish(self, title: str, ended: Ended) -> None:
        """Record a task that ended, and close its job if it was the last one."""
        job, index = self._running.pop(title)
        begun, outcome = self.state.begun[job], ended.outcome
        step = begun.steps[index]
        if isinstance(outcome, ArtifactRef):
            record = self.store.record(outcome)
            begun.rows[index] = row = RunRow(
                *(title, outcome, ended.how or "made", ended.seconds),
                *(record.metrics, ended.began, record.timings.peak_bytes),
            )
            self.state.finish(row)
            self._close(job)
        elif outcome is not None:
            self.state.fail(title, str(outcome))
            failure = RunError(titled(step, str(outcome)), title)
            failure.__cause__ = outcome
            self._fail(job, index, failure)

    def _fail(self, job: Job, index: int, failure: Exception) -> None:
        self.state.begun[job].failures[index] = failure
        self._failed = True

    def _close(self, job: Job) -> None:
        """Mark a job as done if all its artifacts are published and accepted."""
        begun = self.state.begun[job]
        if begun.complete:
            refs = [row.ref for row in begun.in_order]
            try:
                job.accept(refs)
            except Exception as error:
                self._fail(job, -1, error)
                self.state.refuse(job.title, str(error))
            else:
                self._done[job] = refs

    def _raise_first(self) -> None:
        """Raise the first failure in the order of the DAG; clear the frames of the others."""
        failures = [failure for _, failure in self.state.failures]
        for failure in failures[1:]:
            clear_frames(failure)
        if failures:
            raise failures[0]


def titled(step: Step, message: str) -> str:
    """Put the task's title before a message, in place of the message's own stage and source."""
    rest = message.removeprefix(f"{step.stage.task}: ")
    source = _SOURCE.search(step.title)
    if source is not None:
        rest = rest.removeprefix(f"source '{source[1]}': ")
    return f"{step.title}: {rest}"
