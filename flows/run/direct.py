"""Runs a DAG in this process, without Prefect: in a notebook, in a debugger, or when nothing has changed.

The stages, their artifacts and the run's record are those of a run on Prefect; only its server knows nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from tokmill.flows.profile import Profile
from tokmill.flows.results import RunResult
from tokmill.flows.run.events import RunState, noting_warnings
from tokmill.flows.run.executor import Executor, composed
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.record import begun, followed, note_end, note_refusals, recorded
from tokmill.flows.run.target import Target
from tokmill.flows.run.tasks import Ended, LocalTasks, TaskSpec
from tokmill.flows.tracking.attempt import Attempt
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.leases import leased
from tokmill.tasks.store.runs import State


def run_directly(profile: Profile, target: Target, machine: Machine, state: RunState) -> RunResult:
    """Make the artifacts of a DAG, and record the run in the catalog.

    Args:
        profile: the resolved profile.
        target: what is made of it.
        machine: the machine settings; with one worker all work is done in the calling thread.
        state: is told of what happens.

    Raises:
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed; artifacts that were published before stay published.
    """
    store, provenance = machine.open_store(), Provenance.collect(run_id=str(uuid4()))
    with _recorded(store, profile, target, machine, state, provenance) as completed:
        with LocalTasks(machine.workers) as tasks, noting_warnings(state.note):
            dag = composed(profile, target, store, machine, state)
            done = Executor(store, tasks, state, machine, provenance).run(dag.jobs)
            result = RunResult(str(provenance.run_id), state.rows, dag.artifacts(done))
        completed(result)
    return result


def reused(profile: Profile, target: Target, machine: Machine, state: RunState) -> RunResult | None:
    """Return the result of a run for which the store has every artifact, and record it; else None.

    Whatever goes wrong is left to a run that makes what is missing: it records the failure and reports it.
    See `run_directly`.
    """
    store, provenance, trial = machine.open_store(), Provenance.collect(run_id=str(uuid4())), RunState()
    with leased(store.layout, str(provenance.run_id), names=profile.name):
        try:
            dag = composed(profile, target, store, machine, trial)
            done = Executor(store, _Lookups(store), trial).run(dag.jobs)
            result = RunResult(str(provenance.run_id), trial.rows, dag.artifacts(done))
        except (_MissingError, TaskError):
            return None
        state.sources, state.jobs, state.begun = trial.sources, trial.jobs, trial.begun
        with _recorded(store, profile, target, machine, state, provenance) as completed:
            state.expect_steps(trial.steps)
            for step, row in zip(trial.steps, trial.rows, strict=True):
                state.submit(step, step.request())
                state.finish(row)
            completed(result)
        return result


class _MissingError(Exception):
    """The store has no artifact for a step."""


class _Lookups:
    """Tasks that only look artifacts up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: deque[tuple[str, Ended]] = deque()

    def submit(self, specs: Sequence[TaskSpec]) -> None:
        """Look the artifacts of a job up; raises _MissingError if there is none."""
        refs = {spec.title: spec.lookup(self._store) for spec in specs}
        if None in refs.values():
            raise _MissingError
        self._ended += [(title, Ended(ref, "cached", time.monotonic())) for title, ref in refs.items()]

    def wait(self) -> tuple[str, Ended]:
        """Return the next artifact."""
        return self._ended.popleft()

    def paused(self) -> None:
        """Return None, since nobody can pause it."""


@contextmanager
def _recorded(
    store: Store,
    profile: Profile,
    target: Target,
    machine: Machine,
    state: RunState,
    provenance: Provenance,
) -> Iterator[Callable[[RunResult], None]]:
    """Record the run of this block, and have others follow it."""
    run_id, begins = str(provenance.run_id), begun(profile, machine, provenance, name=target.named(profile))
    store.catalog.settle()

    def note(error: BaseException) -> None:
        ended: State = "cancelled" if isinstance(error, KeyboardInterrupt) else "crashed"
        with note_refusals(error):
            note_end(store, run_id, state, error, ended)

    with (
        recorded(store, run_id, begins, state, note) as completed,
        followed(profile, Attempt(run_id, 1, begins, store), state, state.note),
    ):
        yield completed
