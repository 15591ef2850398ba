"""Runs a DAG in this process, without Prefect: in a notebook, in a debugger, or when nothing has changed.

The stages, their artifacts and the run's record are those of a run on Prefect; only its server knows nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from uuid import uuid4

from tokmill.flows.profile import Profile
from tokmill.flows.results import RunResult, RunRow
from tokmill.flows.run.dag import Node, Step, walk
from tokmill.flows.run.events import JobState, RunState, noting_warnings
from tokmill.flows.run.executor import Executor, result_of
from tokmill.flows.run.followers import followed
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.record import begun, note_end, note_refusals, recorded
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.target import Target
from tokmill.flows.run.tasks import LocalTasks, TaskSettings
from tokmill.flows.tracking.attempt import Attempt
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.leases import hold, leased
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
    with _recorded(profile, target, machine, state, provenance) as completed:
        with LocalTasks(machine.workers) as tasks, noting_warnings(state.note):
            state.sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = target.compose(profile, store, state.sources)
            done = Executor(store, tasks, state, TaskSettings.of(machine, provenance)).run(dag.jobs)
        result = result_of(str(provenance.run_id), dag, done, state.rows)
        completed(result)
    return result


def reused(profile: Profile, target: Target, machine: Machine, state: RunState) -> RunResult | None:
    """Return the result of a run for which the store has every artifact, and record it; else None.

    Whatever goes wrong is left to a run that makes what is missing: it records the failure and reports it.
    See `run_directly`.
    """
    store, rows, steps = machine.open_store(), list[RunRow](), list[Step]()

    def look_up(step: Step) -> Node:
        ref = store.lookup(step.request(), verify=machine.verify)
        if ref is None:
            raise _MissingError(step.title)
        steps.append(step)
        rows.append(RunRow(step.title, ref, "cached", 0.0, store.record(ref).metrics))
        return ref

    with leased(store.layout, str(uuid4()), names=profile.name):
        try:
            sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = target.compose(profile, store, sources)
            done = walk(dag.jobs, look_up)
        except (_MissingError, TaskError):
            return None
        if not _holds(store, rows):
            return None
        state.sources, state.jobs = sources, dag.jobs
        provenance, left = Provenance.collect(run_id=str(uuid4())), zip(steps, rows, strict=True)
        for job in dag.jobs:
            of_job = list(islice(left, len(done[job])))
            state.begun[job] = JobState(
                [step for step, _ in of_job], dict(enumerate(row for _, row in of_job))
            )
        with _recorded(profile, target, machine, state, provenance) as completed:
            state.expect_steps(steps)
            for step, row in zip(steps, rows, strict=True):
                store.label(row.ref, row.name)
                state.submit(step, step.request())
                state.finish(row)
            result = result_of(str(provenance.run_id), dag, done, rows)
            completed(result)
        return result


@contextmanager
def _recorded(
    profile: Profile, target: Target, machine: Machine, state: RunState, provenance: Provenance
) -> Iterator[Callable[[RunResult], None]]:
    """Record the run of this block, and have others follow it."""
    store, run_id = machine.open_store(), str(provenance.run_id)
    store.catalog.settle()
    begins = begun(profile, machine, provenance, name=target.named(profile))

    def note(error: BaseException) -> None:
        ended: State = "cancelled" if isinstance(error, KeyboardInterrupt) else "crashed"
        with note_refusals(error):
            note_end(store, run_id, state, error, ended)

    with (
        recorded(store, run_id, begins, state, note) as completed,
        followed(profile, Attempt(run_id, 1, begins, store), state, state.note),
    ):
        yield completed


def _holds(store: Store, rows: Sequence[RunRow]) -> bool:
    """Whether the store still has what was found, now that no collector removes it.

    What has a label under a name of the profile was safe when it was looked up; see `tasks.store.leases`.
    """
    others = [row.ref for row in rows if not store.names.find(row.ref.kind, row.name, row.ref.fingerprint)]
    hold(ref.fingerprint for ref in others)
    return all(store.holds(ref) for ref in others)


class _MissingError(Exception):
    """The store has no artifact for a step."""
