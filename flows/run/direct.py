"""Runs a DAG in this process, without Prefect: in a notebook, in a debugger, or when nothing has changed.

The stages, their artifacts and the run's record are those of a run on Prefect; only its server knows nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from tokmill.flows.profile import Profile
from tokmill.flows.run.announcing import announcer_of
from tokmill.flows.run.beginning import begun
from tokmill.flows.run.composer import Locate
from tokmill.flows.run.dag import Dag, Done, Job, Node, Step, walk
from tokmill.flows.run.execution import Executor
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.observing import attempt_of, followed
from tokmill.flows.run.performing import perform
from tokmill.flows.run.progress import Reporter, noting_warnings
from tokmill.flows.run.recording import recorded
from tokmill.flows.run.results import RunResult, RunRow
from tokmill.flows.run.so_far import SoFar
from tokmill.flows.run.sources import Sources, resolve_sources
from tokmill.flows.run.tasks import Asked, Ended, TaskSpec
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, Store, Verify
from tokmill.tasks.store.leases import hold, leased
from tokmill.tasks.store.runs import State
from tokmill.tokenizer.core.stopping import allow_work, request_stop

Compose: TypeAlias = Callable[[Sources, Locate], Dag]


def run_directly(
    profile: Profile, machine: Machine, reporter: Reporter, compose: Compose, name: str | None = None
) -> RunResult:
    """Make the artifacts of a DAG, and record the run in the catalog.

    Args:
        profile: the resolved profile.
        machine: the machine settings; with one worker all work is done in the calling thread.
        reporter: called with the progress.
        compose: returns the DAG, given the resolved sources and where artifacts are.
        name: what the run is called; by default after its profile and overrides.

    Raises:
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed; artifacts that were published before stay published.
    """
    store, run_id, so_far = machine.open_store(), str(uuid4()), SoFar()
    provenance = Provenance.collect(run_id=run_id)
    store.catalog.settle()
    note_end, announcer = partial(_note_end, store, run_id, so_far), announcer_of(profile, store)
    begins = begun(profile, machine, provenance, name=name)
    with (
        recorded(store, run_id, begins, so_far, note_end, announcer) as completed,
        followed(profile, attempt_of(run_id, begins, store), reporter, reporter.note) as told,
    ):
        with pool_of(machine.workers) as pool, noting_warnings(reporter):
            so_far.sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = compose(so_far.sources, store.place)
            share = machine.memory_bytes // machine.workers
            tasks, limits = DirectTasks(pool), machine.limits
            settings = (machine.verify, share, provenance, limits, machine.refresh)
            executor = Executor(store, tasks, told, *settings)
            so_far.rows, so_far.steps = executor.rows_so_far, executor.steps_so_far
            done = executor.run(dag.jobs)
        result = _result(run_id, dag, executor.rows, done)
        completed(result)
    return result


class Shown(Protocol):
    """A run that a server shows while it is recorded."""

    run_id: str
    link: str | None

    def complete(self, result: RunResult, jobs: Mapping[Job, Sequence[RunRow]]) -> None:
        """Show the result, and the rows of each job."""


Show: TypeAlias = Callable[[], AbstractContextManager[Shown | None]]
"""Begins to show a run that found everything; what it yields is None where there is nobody to see it."""


def reused(
    profile: Profile,
    machine: Machine,
    reporter: Reporter,
    compose: Compose,
    show: Show = nullcontext,
    name: str | None = None,
) -> RunResult | None:
    """Return the result of a run for which the store has every artifact, and record it; else None.

    Whatever goes wrong is left to a run that makes what is missing: it records the failure and reports it.

    Args:
        profile: see `run_directly`.
        machine: see `run_directly`.
        reporter: see `run_directly`.
        compose: see `run_directly`.
        show: called if everything was found.
        name: see `run_directly`.
    """
    store, run_id = machine.open_store(), str(uuid4())
    with leased(store.layout, run_id, names=profile.name):
        found = _Found(store, machine.verify)
        try:
            sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = compose(sources, store.place)
            done = walk(dag.jobs, found.look_up)
        except (_MissingError, TaskError):
            return None
        if not _holds(store, found.rows):
            return None
        with show() as shown:
            so_far = SoFar(sources, lambda: found.rows, lambda: found.steps)
            return _recorded_as_found(profile, machine, reporter, so_far, dag, done, shown, name)


def _recorded_as_found(
    profile: Profile,
    machine: Machine,
    reporter: Reporter,
    so_far: SoFar,
    dag: Dag,
    done: Done,
    shown: Shown | None,
    name: str | None,
) -> RunResult:
    run_id, link = (str(uuid4()), None) if shown is None else (shown.run_id, shown.link)
    store, rows = machine.open_store(), so_far.rows()
    result = _result(run_id, dag, rows, done)
    provenance = Provenance.collect(flow_run_id=None if shown is None else run_id, run_id=run_id)
    note_end, announcer = partial(_note_end, store, run_id, so_far), announcer_of(profile, store, link=link)
    begins = begun(profile, machine, provenance, name=name, url=link)
    with (
        recorded(store, run_id, begins, so_far, note_end, announcer) as completed,
        followed(profile, attempt_of(run_id, begins, store), reporter, reporter.note) as told,
    ):
        for step, row in zip(so_far.steps(), rows, strict=True):
            store.label(row.ref, row.name)
            told.on_submit(step)
            told.on_finish(row.task, row.how, row.seconds, row.ref, row.metrics)
        completed(result)
        if shown is not None:
            left = iter(rows)
            shown.complete(result, {job: list(islice(left, len(done[job]))) for job in dag.jobs})
    return result


def _holds(store: Store, rows: Sequence[RunRow]) -> bool:
    """Whether the store still has what was found, now that no collector removes it.

    What has a label under a name of the profile was safe when it was looked up; see `tasks.store.leases`.
    """
    others = [row.ref for row in rows if not store.names.find(row.ref.kind, row.name, row.ref.fingerprint)]
    hold(ref.fingerprint for ref in others)
    return all(store.holds(ref) for ref in others)


class _MissingError(Exception):
    """The store has no artifact for a step."""


class _Found:
    """Looks steps up in the store; the first that is missing ends it."""

    def __init__(self, store: Store, verify: Verify) -> None:
        self.rows: list[RunRow] = []
        self.steps: list[Step] = []
        self._store = store
        self._verify = verify

    def look_up(self, step: Step) -> Node:
        """Return the artifact of a step."""
        ref = self._store.lookup(step.request(), verify=self._verify)
        if ref is None:
            raise _MissingError(step.title)
        self.steps.append(step)
        self.rows.append(RunRow(step.title, ref, "cached", 0.0, self._store.record(ref).metrics))
        return ref


def _result(run_id: str, dag: Dag, rows: Sequence[RunRow], done: Done) -> RunResult:
    made = dag.artifacts(done)
    return RunResult(run_id, rows, {kind: ref for kind, ref in made.items() if isinstance(ref, ArtifactRef)})


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
        """See `tasks.Tasks`."""
        return [self.pool.submit(copy_context().run, _ended, each.spec, each.title) for each in asked]

    def ended(self, submitted: Any) -> Ended:
        """See `tasks.Tasks`."""
        error = submitted.exception()
        return submitted.result() if error is None else Ended(error)

    def paused(self) -> None:
        """See `tasks.Tasks`; nobody can pause such a run."""


def _ended(spec: TaskSpec, title: str) -> Ended:
    store = Store.open(spec.store)
    ref = None if spec.refresh else store.lookup(spec.request, verify=spec.verify)
    if ref is None:
        return Ended(perform(spec, title, _unheard).ref)
    store.label(ref, spec.request.name)
    return Ended(ref, cached=True)


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
