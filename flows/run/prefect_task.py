"""Turns any stage's request into a cached, recorded Prefect task; the only link between stages and Prefect.

The store decides which tasks are cached, and Prefect shows it. The cache key is the request's fingerprint.
Before the key is returned, the store is asked for an intact artifact. If it has none, Prefect's result file
for that key is deleted; if it has one and Prefect has no such file, the file is written. So a task run is
`Cached` in the UI exactly when the store has its artifact, no matter which run made it.

Prefect's result files (artifact references of a few hundred bytes) are in `<store>/.prefect`, so that they
move with the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.futures import PrefectFuture
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer
from prefect.task_runners import TaskRunner
from prefect.utilities.annotations import quote

from tokmill.flows.errors import RunError
from tokmill.flows.run.execution import perform
from tokmill.flows.run.shown import show
from tokmill.flows.run.tasks import Ended, TaskSpec
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store import Store

_HOW: dict[How, str] = {
    "made": "made by this task",
    "cached": "found in the store",
    "waited": "made by another task while this one waited",
}


def results_folder(store: Path) -> Path:
    """Return the folder of Prefect's result files for `store`."""
    return store / ".prefect"


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
        spec = _unquoted(inputs["spec"])
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


def _unquoted(spec: Any) -> TaskSpec:
    return spec.unquote() if isinstance(spec, quote) else spec  # type: ignore[no-any-return]


@task(cache_policy=FingerprintPolicy(), persist_result=True, result_serializer="json")
def realize(spec: TaskSpec, title: str) -> ArtifactRef:
    """Publish the requested artifact, unless the store has it.

    Raises:
        As `execution.perform`.
    """
    spec, logger = _unquoted(spec), get_run_logger()
    realized = perform(spec, title, logger.info)
    show(Store.open(spec.store), realized.ref)
    logger.info("%s/%s: %s", spec.request.stage.kind, spec.request.name, _HOW[realized.how])
    return realized.ref


def as_task(spec: TaskSpec, task_run_name: str) -> Task[..., ArtifactRef]:
    """Return the Prefect task for a request; people see `task_run_name`, e.g. `encode[english/3]`."""
    return realize.with_options(
        name=spec.request.stage.task,
        task_run_name=task_run_name,
        result_storage=results_folder(spec.store),
    )


@dataclass(frozen=True)
class PrefectTasks:
    """Executes tasks on one of Prefect's task runners."""

    runner: TaskRunner[Any]

    def submit(self, spec: TaskSpec, title: str, after: Sequence[Any]) -> PrefectFuture[ArtifactRef]:
        """See `execution.Tasks`."""
        arguments = {"spec": quote(spec), "title": title}
        future: PrefectFuture[ArtifactRef] = self.runner.submit(
            as_task(spec, title), arguments, wait_for=list(after)
        )
        return future

    def ended(self, submitted: PrefectFuture[ArtifactRef]) -> Ended:
        """See `execution.Tasks`."""
        submitted.wait()  # it has ended, but may not have its final state until it is waited for
        state = submitted.state
        outcome = submitted.result(raise_on_failure=False)
        if state.is_completed():
            return Ended(outcome, cached=state.name == "Cached")
        return Ended(outcome if isinstance(outcome, BaseException) else RunError(str(state.message)))
