"""Makes a Prefect task, cached and recorded, of any stage's request. Nothing else binds stages to Prefect.

The laws. The fingerprint decides what is cached, and Prefect shows it. The cache key is the request's
fingerprint. Before the key is returned, the store is asked whether it holds a sound artifact. If not,
Prefect's result file for that key is deleted; if it does and Prefect has no such file, one is written. So a
task run is `Cached` in the UI exactly when the store holds its artifact, whoever made it.

Prefect's result files (a few hundred bytes each: an artifact reference) are in `<store>/.prefect`, so that
they move with the store and not with a user's home directory.
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

from tokmill.tasks.core.context import context_value
from tokmill.tasks.core.machine import memory_limited_to
from tokmill.tasks.core.progress import StageProgress, progress_reported_to
from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store import Provenance, Store, Verify
from tokmill.tokenizer.core.stopping import heed_stop

_HOW: dict[How, str] = {
    "made": "made by this task",
    "cached": "was there already",
    "waited": "made by another task, which this one waited for",
}

# The callbacks of a run in this process; a task that runs in another process reports to nobody.
_TOLD: ContextVar["Told | None"] = ContextVar("told", default=None)


@dataclass(frozen=True)
class Told:
    """Callbacks for a task's start, progress and end; each receives the task's title.

    `on_end` also receives how the task got its artifact, which none of Prefect's states tells.
    """

    on_start: Callable[[str], None]
    on_progress: Callable[[str, StageProgress], None]
    on_end: Callable[[str, How], None]

    def of_tasks(self) -> AbstractContextManager[None]:
        """Have the tasks that are submitted in this block call back."""
        return context_value(_TOLD, self)


@dataclass(frozen=True)
class Ask:
    """A request with the store for its artifact, and the machine's limits.

    Attributes:
        request: what is asked for.
        store: the folder of artifacts.
        verify: how thoroughly an existing artifact is checked.
        memory_bytes: memory that the stage may use; see `tasks.core.machine`.
        provenance: of the run. A task could ask the server for its deployment, but each would need a client
            of its own, which costs more CPU time than everything else in its orchestration.
    """

    request: Request
    store: Path
    verify: Verify = "sizes"
    memory_bytes: int | None = None
    provenance: Provenance | None = None


def results_folder(store: Path) -> Path:
    """Where Prefect keeps its result files for `store`."""
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
        ask = _unquoted(inputs["ask"])
        store = Store.open(ask.store)
        key = f"{ask.request.stage.verb}-{store.fingerprint(ask.request)}"
        ref = store.lookup(ask.request, verify=ask.verify)
        if ref is None:
            (results_folder(ask.store) / key).unlink(missing_ok=True)
        else:
            store.label(ref, ask.request.name)
            _remember(ask.store, key, ref)
        return key


def _remember(store: Path, key: str, ref: ArtifactRef) -> None:
    """Write `ref` as Prefect's result for `key`, unless it is that already.

    Another profile may have made the artifact under another name; the reference has this run's.
    """
    folder = LocalFileSystem(basepath=str(results_folder(store)))
    results = ResultStore(result_storage=folder, serializer=JSONSerializer())
    if not results.exists(key) or results.read(key).result != ref:
        results.write(obj=ref, key=key)


def _unquoted(ask: Any) -> Ask:
    return ask.unquote() if isinstance(ask, quote) else ask  # type: ignore[no-any-return]


@task(cache_policy=FingerprintPolicy(), persist_result=True, result_serializer="json")
def realize(ask: Ask, title: str) -> ArtifactRef:
    """Publish the requested artifact, unless the store has it.

    Raises:
        TaskError, TokenizerError: the stage refuses its parameters or input.
        StopRequested: the run is ending (`tokenizer.core.stopping`).
    """
    heed_stop()
    ask = _unquoted(ask)
    told = _TOLD.get()
    if told:
        told.on_start(title)
    logger = get_run_logger()
    watcher = partial(told.on_progress, title) if told else None
    with memory_limited_to(ask.memory_bytes), progress_reported_to(watcher):
        realized = Store.open(ask.store).realize(
            ask.request, provenance=ask.provenance, report=logger.info, verify=ask.verify
        )
    if told:
        told.on_end(title, realized.how)
    logger.info("%s/%s: %s", ask.request.stage.kind, ask.request.name, _HOW[realized.how])
    return realized.ref


def as_task(ask: Ask, task_run_name: str) -> Task[..., ArtifactRef]:
    """Return the Prefect task for a request; people see `task_run_name`, e.g. `encode[english/3]`."""
    return realize.with_options(
        name=ask.request.stage.task,
        task_run_name=task_run_name,
        result_storage=results_folder(ask.store),
    )
