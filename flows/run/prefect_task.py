"""Turns any stage's request into a cached, recorded Prefect task; the only link between stages and Prefect.

The store decides which tasks are cached, and Prefect shows it. The cache key is the request's fingerprint.
Before the key is returned, the store is asked for an intact artifact. If it has none, Prefect's result file
for that key is deleted; if it has one and Prefect has no such file, the file is written. So a task run is
`Cached` in the UI exactly when the store has its artifact, no matter which run made it.

Prefect's result files (artifact references of a few hundred bytes) are in `<store>/.prefect`, so that they
move with the store.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer
from prefect.utilities.annotations import quote

from tokmill.flows.run.shown import show
from tokmill.tasks.core.context import StageProgress, context_value, memory_limited_to, progress_reported_to
from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store import Provenance, Store, Verify
from tokmill.tokenizer.core.stopping import raise_if_stopped

_HOW: dict[How, str] = {
    "made": "made by this task",
    "cached": "found in the store",
    "waited": "made by another task while this one waited",
}

# None in a task that runs in another process.
_CALLBACKS: ContextVar["TaskCallbacks | None"] = ContextVar("callbacks", default=None)


@dataclass(frozen=True)
class TaskCallbacks:
    """Callbacks for a task's start, progress and end; each receives the task's title.

    `on_end` also receives how the task got its artifact, which Prefect's states do not record.
    """

    on_start: Callable[[str], None]
    on_progress: Callable[[str, StageProgress], None]
    on_end: Callable[[str, How], None]

    def installed(self) -> AbstractContextManager[None]:
        """Install the callbacks for the tasks that are submitted in this block."""
        return context_value(_CALLBACKS, self)


@dataclass(frozen=True)
class TaskSpec:
    """The argument of a task: a request, the store to publish its artifact in, and the machine's limits.

    Attributes:
        request: for the artifact.
        store: the folder of artifacts.
        verify: how thoroughly an existing artifact is checked.
        memory_bytes: memory limit of the stage; see `tasks.core.context`.
        provenance: the run's provenance. Tasks do not ask the server for the deployment themselves, because
            one client per task costs more CPU time than the rest of its orchestration.
    """

    request: Request
    store: Path
    verify: Verify = "sizes"
    memory_bytes: int | None = None
    provenance: Provenance | None = None


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
        TaskError, TokenizerError: the stage's parameters or inputs are invalid.
        StopRequested: the run is being stopped (`tokenizer.core.stopping`).
    """
    raise_if_stopped()
    spec = _unquoted(spec)
    callbacks = _CALLBACKS.get()
    if callbacks:
        callbacks.on_start(title)
    logger = get_run_logger()
    watcher = partial(callbacks.on_progress, title) if callbacks else None
    with memory_limited_to(spec.memory_bytes), progress_reported_to(watcher):
        realized = Store.open(spec.store).realize(
            spec.request, provenance=spec.provenance, report=logger.info, verify=spec.verify
        )
    show(Store.open(spec.store), realized.ref)
    if callbacks:
        callbacks.on_end(title, realized.how)
    logger.info("%s/%s: %s", spec.request.stage.kind, spec.request.name, _HOW[realized.how])
    return realized.ref


def as_task(spec: TaskSpec, task_run_name: str) -> Task[..., ArtifactRef]:
    """Return the Prefect task for a request; people see `task_run_name`, e.g. `encode[english/3]`."""
    return realize.with_options(
        name=spec.request.stage.task,
        task_run_name=task_run_name,
        result_storage=results_folder(spec.store),
    )
