"""Turns any stage's request into a cached, recorded Prefect task; the only link between stages and Prefect.

The store decides which tasks are cached, and Prefect shows it. The cache key is the request's fingerprint.
Before the key is returned, the store is asked for an intact artifact. If it has none, Prefect's result file
for that key is deleted; if it has one and Prefect has no such file, the file is written. So a task run is
`Cached` in the UI exactly when the store has its artifact, no matter which run made it.

Prefect's result files (artifact references of a few hundred bytes) are in `<store>/.prefect`, so that they
move with the store.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import Any
from uuid import UUID

from prefect import Task, get_run_logger, task
from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import RunInput, State, TaskRunResult
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import Pause
from prefect.filesystems import LocalFileSystem
from prefect.futures import PrefectFuture
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer
from prefect.states import Cancelled
from prefect.task_runners import TaskRunner
from prefect.transactions import get_transaction

from tokmill.flows.errors import RunError
from tokmill.flows.run.elsewhere import Listening, asked_of_tasks, hold_here, telling
from tokmill.flows.run.groups import GroupError, divided, group_title
from tokmill.flows.run.machine import supply_credentials
from tokmill.flows.run.performing import perform
from tokmill.flows.run.plain_logs import keep_logs_plain
from tokmill.flows.run.tasks import Asked, Ended, TaskSpec
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tasks.store.layout import Layout
from tokmill.tokenizer.core.stopping import StopRequested, request_stop

_PAUSED = "the run was paused before this was begun"
_STOPPED = "the run was stopped before this was done; whatever was published before is kept"

keep_logs_plain()  # also in a process of a pool, which imports this for its first task


class ResultsFolder(PosixPath):
    """The folder of a store's result files, which is another one wherever a task is sent.

    A store in a bucket has a local folder on each machine. Prefect looks for results where its task says; the
    cache policy keeps them in that of the machine on which the task is.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return results_folder, (Layout(Path(self.parent)).location,)


def results_folder(location: str) -> ResultsFolder:
    """Return the folder of Prefect's result files for the store at a path or URL, on this machine."""
    return ResultsFolder(Store.open(location).layout.results)


class Sealed:
    """Holds a task's argument so that Prefect does not look for futures in it, field by field.

    Prefect's own mark for that (`quote`) does not survive the way to Dask and Ray.
    """

    def __init__(self, specs: Sequence[TaskSpec], titles: Sequence[str]) -> None:
        self.specs = specs
        self.titles = titles

    @property
    def title(self) -> str:
        """What people see of the task run, e.g. `encode[english/3]`."""
        return group_title(self.titles)


@dataclass
class FingerprintPolicy(CachePolicy):
    """Cache policy whose key is our fingerprint; keeps Prefect's result files consistent with the store."""

    def compute_key(
        self,
        task_ctx: TaskRunContext,
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any],
        **kwargs: Any,
    ) -> str | None:
        """Return `<verb>-<fingerprint>`, after making Prefect's result file agree with the store.

        A group's fingerprint is the digest of those of its steps.
        """
        specs = inputs["sealed"].specs
        supply_credentials(specs[0].credentials)
        store, verb = Store.open(specs[0].store), specs[0].request.stage.verb
        owners = [store.fingerprint(spec.request) for spec in specs]
        key = f"{verb}-{owners[0] if len(owners) == 1 else digest_bytes(' '.join(owners).encode())}"
        refs = _found(store, specs)
        if refs is None:
            (results_folder(store.location) / key).unlink(missing_ok=True)
        else:
            for spec, ref in zip(specs, refs, strict=True):
                store.label(ref, spec.request.name)
            _remember(store, key, refs)
        return key


def _found(store: Store, specs: Sequence[TaskSpec]) -> list[ArtifactRef] | None:
    """Return the artifacts of all specs; None if the store lacks one, or one is to be made again."""
    refs = []
    for spec in specs:
        ref = None if spec.refresh else store.lookup(spec.request, verify=spec.verify)
        if ref is None:
            return None
        refs.append(ref)
    return refs


def _remember(store: Store, key: str, refs: list[ArtifactRef]) -> None:
    """Write `refs` as Prefect's result for `key`, unless they already are.

    Another profile may have made an artifact under another name; `refs` have this run's names.
    """
    folder = LocalFileSystem(basepath=str(results_folder(store.location)))
    results = ResultStore(result_storage=folder, serializer=JSONSerializer())
    if not results.exists(key) or results.read(key).result != refs:
        results.write(obj=refs, key=key)


@task(cache_policy=FingerprintPolicy(), persist_result=True, result_serializer="json")
def realize(sealed: Sealed) -> Any:
    """Publish the requested artifacts, unless the store has them; what a stop ends is Cancelled.

    Raises:
        GroupError: one of several failed.
        Exception: otherwise as `performing.perform`.
    """
    logger = get_run_logger()
    folder = _telling_folder(sealed.specs[0])
    refs: list[ArtifactRef] = []
    for spec, title in zip(sealed.specs, sealed.titles, strict=True):
        asked = asked_of_tasks(folder)
        if asked != "go":
            return _cancelled(_PAUSED if asked == "hold" else _STOPPED)
        try:
            with telling(folder, title):
                refs.append(perform(spec, title, logger.info).ref)
        except StopRequested:
            return _cancelled(_STOPPED)
        except Exception as error:
            if len(sealed.specs) == 1:
                raise
            raise GroupError(title, refs, error) from error
    return refs


def _cancelled(message: str) -> State[Any]:
    """Return the state of a task that was not done, and have Prefect keep no result of it as one to reuse."""
    transaction = get_transaction()
    if transaction is not None:
        transaction.write_on_commit = False
    return Cancelled(message=message)


def _telling_folder(spec: TaskSpec) -> Path | None:
    """Return where a task tells of itself, in this machine's view of the store; None in the run's process."""
    return None if spec.telling is None else Store.open(spec.store).root / spec.telling


def _title(parameters: dict[str, Any]) -> str:
    return str(parameters["sealed"].title)


@lru_cache(maxsize=64)  # to make one costs Prefect more than a millisecond
def as_task(name: str, results: ResultsFolder) -> Task[..., list[ArtifactRef]]:
    """Return the Prefect task of a stage.

    Args:
        name: of the task.
        results: the folder of Prefect's result files.
    """
    named: Any = _title  # Prefect's type of it has a method that no function has
    return realize.with_options(name=name, task_run_name=named, result_storage=results)


@dataclass(frozen=True, eq=False)
class Member:
    """A step within a group that was submitted.

    Attributes:
        group: the future of the group's task run.
        index: of the step within it.
        title: of the step.
    """

    group: PrefectFuture[list[ArtifactRef]]
    index: int
    title: str

    def add_done_callback(self, callback: Callable[[Any], None], /) -> None:
        """See `tasks.Submitted`."""
        self.group.add_done_callback(lambda _: callback(self))


@dataclass(frozen=True)
class PrefectTasks:
    """Executes tasks on one of Prefect's task runners, in groups (`flows.run.groups`).

    Attributes:
        runner: the task runner.
        workers: how many task runs it executes at a time.
        heard: what tasks in other processes tell; None if they run in threads of this one.
        task_runs: title of each submitted step → the task run of its group.
    """

    runner: TaskRunner[Any]
    workers: int
    heard: Listening | None = None
    task_runs: dict[str, UUID] = field(default_factory=dict)

    def submit(self, asked: Sequence[Asked]) -> Sequence[Member]:
        """See `tasks.Tasks`."""
        if self.heard is not None:
            self.heard.take_callbacks()
        return [member for group in divided(asked, self.workers) for member in self._submit(group)]

    def _submit(self, asked: Sequence[Asked]) -> list[Member]:
        folder = None if self.heard is None else self.heard.below_the_store
        specs = [replace(each.spec, telling=folder) for each in asked]
        titles = [each.title for each in asked]
        # all of them have ended, so the page is told of them, and nobody has to wait, or to be sent them
        before = {member.group.task_run_id for each in asked for member in each.after}
        edges: set[RunInput] = {TaskRunResult(id=task_run_id) for task_run_id in before}
        future: PrefectFuture[list[ArtifactRef]] = self.runner.submit(
            as_task(specs[0].request.stage.task, results_folder(specs[0].store)),
            {"sealed": Sealed(specs, titles)},
            dependencies={"sealed": edges},
        )
        self.task_runs.update(dict.fromkeys(titles, future.task_run_id))
        return [Member(future, index, title) for index, title in enumerate(titles)]

    def ended(self, submitted: Member) -> Ended:
        """See `tasks.Tasks`."""
        try:
            submitted.group.wait()  # it has ended, but may not have its final state until it is waited for
        except Pause:  # Prefect held back a task of this process
            return Ended(None)
        state = submitted.group.state
        outcome = submitted.group.result(raise_on_failure=False)
        if state.name == "Cached":
            return Ended(outcome[submitted.index], cached=True)
        told = self.heard.last(submitted.title) if self.heard is not None else None
        how, seconds = (None, 0.0) if told is None else (told.how, told.seconds)
        if state.is_completed():
            return Ended(outcome[submitted.index], False, how, seconds)
        if state.is_cancelled():  # held back by `paused`; else its process was told to stop, for another run
            return Ended(None if state.message == _PAUSED else RunError(_STOPPED))
        if isinstance(outcome, GroupError):
            done = submitted.index < len(outcome.refs)
            failed = outcome.error if submitted.index == len(outcome.refs) else None
            return Ended(outcome.refs[submitted.index], False, how, seconds) if done else Ended(failed)
        return Ended(outcome if isinstance(outcome, BaseException) else RunError(str(state.message)))

    def stop(self) -> None:
        """Have the tasks that are at work stop soon, wherever they are."""
        if self.heard is None:
            request_stop()
        else:
            self.heard.ask("stop")

    def paused(self) -> Pause | None:
        """See `tasks.Tasks`; what was submitted and has not begun is held back."""
        context = FlowRunContext.get()
        asked = context.flow_run_suspension_request.get_state() if context else None
        if asked is None:
            return None
        if self.heard is None:
            hold_here()
        else:
            self.heard.ask("hold")
        return Pause(state=asked)
