"""Runs a DAG in this process, without Prefect: in a notebook, in a debugger, or when nothing has changed.

The stages, their artifacts and the run's record are those of a run on Prefect; only its server knows nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from tokmill.flows.profile import Profile
from tokmill.flows.results import RunResult, RunRow
from tokmill.flows.run.dag import Dag, Node, Step, walk
from tokmill.flows.run.executor import Executor, result_of
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.observing import followed
from tokmill.flows.run.progress import Reporter, noting_warnings
from tokmill.flows.run.record import SoFar, begun, recorded
from tokmill.flows.run.sources import Sources, resolve_sources
from tokmill.flows.run.tasks import Asked, Ended, TaskSettings, TaskSpec, perform
from tokmill.flows.tracking.attempt import Attempt
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.leases import hold, leased
from tokmill.tasks.store.runs import State
from tokmill.tokenizer.core.stopping import allow_work, request_stop

Compose: TypeAlias = Callable[[Sources], Dag]
"""Returns the DAG, given the resolved sources."""


def run_directly(
    profile: Profile, machine: Machine, reporter: Reporter, compose: Compose, name: str | None = None
) -> RunResult:
    """Make the artifacts of a DAG, and record the run in the catalog.

    Args:
        profile: the resolved profile.
        machine: the machine settings; with one worker all work is done in the calling thread.
        reporter: called with the progress.
        compose: see `Compose`.
        name: what the run is called; by default after its profile and overrides.

    Raises:
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed; artifacts that were published before stay published.
    """
    so_far = SoFar()
    with _recorded(profile, machine, reporter, so_far, name) as (store, provenance, told, completed):
        with pool_of(machine.workers) as pool, noting_warnings(reporter):
            so_far.sources = resolve_sources(profile, store, rehash=machine.rehash)
            executor = Executor(store, DirectTasks(pool), told, TaskSettings.of(machine, provenance))
            so_far.rows, so_far.steps = executor.rows_so_far, executor.steps_so_far
            dag = compose(so_far.sources)
            result = result_of(str(provenance.run_id), dag, executor.run(dag.jobs), executor.rows)
        completed(result)
    return result


def reused(
    profile: Profile, machine: Machine, reporter: Reporter, compose: Compose, name: str | None = None
) -> RunResult | None:
    """Return the result of a run for which the store has every artifact, and record it; else None.

    Whatever goes wrong is left to a run that makes what is missing: it records the failure and reports it.

    Args:
        profile: see `run_directly`.
        machine: see `run_directly`.
        reporter: see `run_directly`.
        compose: see `run_directly`.
        name: see `run_directly`.
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
            dag = compose(sources)
            done = walk(dag.jobs, look_up)
        except (_MissingError, TaskError):
            return None
        if not _holds(store, rows):
            return None
        so_far = SoFar(sources, lambda: rows, lambda: steps)
        with _recorded(profile, machine, reporter, so_far, name) as (store, provenance, told, completed):
            for step, row in zip(steps, rows, strict=True):
                store.label(row.ref, row.name)
                told.on_submit(step)
                told.on_finish(row)
            result = result_of(str(provenance.run_id), dag, done, rows)
            completed(result)
        return result


@contextmanager
def _recorded(
    profile: Profile, machine: Machine, reporter: Reporter, so_far: SoFar, name: str | None
) -> Iterator[tuple[Store, Provenance, Reporter, Callable[[RunResult], None]]]:
    """Record the run of this block, and have others follow it."""
    store, run_id = machine.open_store(), str(uuid4())
    provenance = Provenance.collect(run_id=run_id)
    store.catalog.settle()
    begins = begun(profile, machine, provenance, name=name)
    with (
        recorded(store, run_id, begins, so_far, partial(_note_end, store, run_id, so_far)) as completed,
        followed(profile, Attempt(run_id, 1, begins, store), reporter, reporter.note) as told,
    ):
        yield store, provenance, told, completed


def _holds(store: Store, rows: Sequence[RunRow]) -> bool:
    """Whether the store still has what was found, now that no collector removes it.

    What has a label under a name of the profile was safe when it was looked up; see `tasks.store.leases`.
    """
    others = [row.ref for row in rows if not store.names.find(row.ref.kind, row.name, row.ref.fingerprint)]
    hold(ref.fingerprint for ref in others)
    return all(store.holds(ref) for ref in others)


class _MissingError(Exception):
    """The store has no artifact for a step."""


def _note_end(store: Store, run_id: str, so_far: SoFar, error: BaseException) -> None:
    """Record why a run ended; if that fails (a full disk), the run's own error is still reported."""
    message = str(error) or type(error).__name__
    try:
        if isinstance(error, Exception):
            store.catalog.finish_run(run_id, state="failed", message=message, found=so_far.found())
        else:
            ended: State = "cancelled" if isinstance(error, KeyboardInterrupt) else "crashed"
            store.catalog.note_end(run_id, state=ended, message=message, found=so_far.found())
    except StoreError as unwritten:
        error.add_note(str(unwritten))


@dataclass(frozen=True)
class DirectTasks:
    """Executes tasks in a pool of this process."""

    pool: Pool

    def submit(self, asked: Sequence[Asked]) -> Sequence[Any]:
        """Have tasks executed; return one for each, in order."""
        return [self.pool.submit(copy_context().run, _ended, each.spec, each.title) for each in asked]

    def ended(self, submitted: Any) -> Ended:
        """Return what became of a task that has ended."""
        error = submitted.exception()
        return submitted.result() if error is None else Ended(error)

    def paused(self) -> None:
        """Return None, since nobody can pause such a run."""


def _ended(spec: TaskSpec, title: str) -> Ended:
    ref = spec.lookup(Store.open(spec.store))
    return Ended(perform(spec, title, _unheard).ref) if ref is None else Ended(ref, cached=True)


def _unheard(message: str) -> None:
    """Take a message that Prefect would show in a task's log; warnings reach the reporter anyway."""


class _CallingThread(Pool):
    """Does everything in the thread that submits it, where a debugger is at home."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function, and return what became of it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def pool_of(workers: int) -> Iterator[Pool]:
    """Open a pool, whose end waits for what was submitted; an interruption stops that first.

    The process lives on, perhaps as a notebook, so work is allowed again afterwards.
    """
    allow_work()
    pool = _CallingThread() if workers == 1 else ThreadPoolExecutor(workers, "tokmill")
    try:
        yield pool
    except Exception:
        pool.shutdown()
        raise
    except BaseException:
        request_stop()
        pool.shutdown(cancel_futures=True)
        allow_work()
        raise
    pool.shutdown()
