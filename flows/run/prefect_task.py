"""Turns any stage's request into a cached, recorded Prefect task; the only link between stages and Prefect.

The store decides which tasks are cached, and Prefect shows it. The cache key is the request's fingerprint.
Before the key is returned, the store is asked for an intact artifact. If it has none, Prefect's result file
for that key is deleted; if it has one and Prefect has no such file, the file is written. So a task run is
`Cached` in the UI exactly when the store has its artifact, no matter which run made it.

Prefect's result files (artifact references of a few hundred bytes) are in `<store>/.prefect`, so that they
move with the store.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Task, get_run_logger, task
from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import RunInput, TaskRunResult
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.futures import PrefectFuture
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer
from prefect.task_runners import TaskRunner

from tokmill.flows.errors import RunError
from tokmill.flows.run.elsewhere import Listening, telling
from tokmill.flows.run.performing import perform
from tokmill.flows.run.tasks import Ended, TaskSpec
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store

_ENGINE = "prefect.task_runs"


def results_folder(store: Path) -> Path:
    """Return the folder of Prefect's result files for `store`."""
    return store / ".prefect"


class Sealed:
    """Holds a task's argument so that Prefect does not look for futures in it, field by field.

    Prefect's own mark for that (`quote`) does not survive the way to Dask and Ray.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec


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
        """Return `<verb>-<fingerprint>`, after making Prefect's result file agree with the store."""
        spec = inputs["sealed"].spec
        store = Store.open(spec.store)
        key = f"{spec.request.stage.verb}-{store.fingerprint(spec.request)}"
        ref = store.lookup(spec.request, verify=spec.verify)
        if ref is None:
            (results_folder(spec.store) / key).unlink(missing_ok=True)
        else:
            store.label(ref, spec.request.name)
            _remember(spec.store, key, ref)
        return key


def _remember(store: Path, key: str, ref: ArtifactRef) -> None:
    """Write `ref` as Prefect's result for `key`, unless it already is.

    Another profile may have made the artifact under another name; `ref` has this run's name.
    """
    folder = LocalFileSystem(basepath=str(results_folder(store)))
    results = ResultStore(result_storage=folder, serializer=JSONSerializer())
    if not results.exists(key) or results.read(key).result != ref:
        results.write(obj=ref, key=key)


@task(cache_policy=FingerprintPolicy(), persist_result=True, result_serializer="json")
def realize(sealed: Sealed, title: str) -> ArtifactRef:
    """Publish the requested artifact, unless the store has it.

    Raises:
        As `performing.perform`.
    """
    spec, logger = sealed.spec, get_run_logger()
    drop_bare_ends()  # also in a process of a pool
    with telling(spec.telling, title):
        return perform(spec, title, logger.info).ref


def drop_bare_ends() -> None:
    """Keep "Finished in state Completed()" out of this process's logs; the page logs ends with figures."""
    logging.getLogger(_ENGINE).addFilter(_says_more)  # which is added once


def _says_more(record: logging.LogRecord) -> bool:
    """Whether a message says more than that a task has ended well."""
    return record.levelno > logging.INFO or not record.getMessage().startswith("Finished in state ")


def as_task(spec: TaskSpec, task_run_name: str) -> Task[..., ArtifactRef]:
    """Return the Prefect task for a request; people see `task_run_name`, e.g. `encode[english/3]`."""
    return realize.with_options(
        name=spec.request.stage.task,
        task_run_name=task_run_name,
        result_storage=results_folder(spec.store),
    )


@dataclass(frozen=True)
class PrefectTasks:
    """Executes tasks on one of Prefect's task runners.

    Attributes:
        runner: the task runner.
        heard: what tasks in other processes tell; None if they run in threads of this one.
        task_runs: title of each submitted task → its task run.
    """

    runner: TaskRunner[Any]
    heard: Listening | None = None
    task_runs: dict[str, UUID] = field(default_factory=dict)
    _titles: dict[Any, str] = field(default_factory=dict)

    def submit(self, spec: TaskSpec, title: str, after: Sequence[Any]) -> PrefectFuture[ArtifactRef]:
        """See `execution.Tasks`."""
        if self.heard is not None:
            self.heard.take_callbacks()
            spec = replace(spec, telling=self.heard.folder)
        arguments = {"sealed": Sealed(spec), "title": title}
        # all of them have ended, so the page is told of them, and nobody has to wait, or to be sent them
        edges: set[RunInput] = {TaskRunResult(id=future.task_run_id) for future in after}
        future: PrefectFuture[ArtifactRef] = self.runner.submit(
            as_task(spec, title), arguments, dependencies={"sealed": edges}
        )
        self._titles[future] = title
        self.task_runs[title] = future.task_run_id
        return future

    def ended(self, submitted: PrefectFuture[ArtifactRef]) -> Ended:
        """See `execution.Tasks`."""
        submitted.wait()  # it has ended, but may not have its final state until it is waited for
        state = submitted.state
        outcome = submitted.result(raise_on_failure=False)
        told = self.heard.last(self._titles.pop(submitted)) if self.heard is not None else None
        if state.is_completed():
            how, seconds = (None, 0.0) if told is None else (told.how, told.seconds)
            return Ended(outcome, state.name == "Cached", how, seconds)
        return Ended(outcome if isinstance(outcome, BaseException) else RunError(str(state.message)))
