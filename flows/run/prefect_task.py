"""The one place where stages meet Prefect: a cached, recorded task for any stage's request.

The laws. Our fingerprint decides what is cached, Prefect shows it: the cache key is the request's
fingerprint, and before it is handed out the store is asked whether the artifact is there and sound. If it
is not, Prefect's memory of it is dropped; if it is and Prefect does not know, Prefect is told. So a task
run is `Cached` in the UI exactly when the store holds its artifact, whoever made it.

Prefect's own result files (a few hundred bytes each: an artifact reference) lie in `<store>/.prefect`, so
that they travel with the store and not with a user's home.
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

# Whoever watches a run from inside its process; a task that runs in another process tells nobody.
_TOLD: ContextVar["Told | None"] = ContextVar("told", default=None)


@dataclass(frozen=True)
class Told:
    """Who is told of tasks, by their titles: that they begin to work, how far they are, and that they end.

    A task ends with how it came by its artifact, which no state of Prefect's says.
    """

    on_start: Callable[[str], None]
    on_progress: Callable[[str, StageProgress], None]
    on_end: Callable[[str, How], None]

    def of_tasks(self) -> AbstractContextManager[None]:
        """Tell of the tasks that are submitted in this block."""
        return context_value(_TOLD, self)


@dataclass(frozen=True)
class Ask:
    """A request together with the store that should hold its artifact, and what the machine allows.

    Attributes:
        request: what is asked for.
        store: the folder of artifacts.
        verify: how closely to check an artifact that is there.
        memory_bytes: what the stage may take of memory; see `tasks.core.machine`.
        provenance: of the run that asks. A task could find its deployment out, but by a request to the server
            and with a new client each, which costs more CPU time than all else that orchestrates it.
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
    """Prefect's cache key = our fingerprint, kept in step with what the store really holds."""

    def compute_key(
        self,
        task_ctx: TaskRunContext,
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any],
        **kwargs: Any,
    ) -> str | None:
        """Return `<verb>-<fingerprint>`; see the module's laws for what happens on the way."""
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
    """Leave `ref` as the result of `key`, unless that is what Prefect remembers already.

    Another profile may have made the artifact under a name of its own; the reference carries ours.
    """
    folder = LocalFileSystem(basepath=str(results_folder(store)))
    results = ResultStore(result_storage=folder, serializer=JSONSerializer())
    if not results.exists(key) or results.read(key).result != ref:
        results.write(obj=ref, key=key)


def _unquoted(ask: Any) -> Ask:
    return ask.unquote() if isinstance(ask, quote) else ask  # type: ignore[no-any-return]


@task(cache_policy=FingerprintPolicy(), persist_result=True, result_serializer="json")
def realize(ask: Ask, title: str) -> ArtifactRef:
    """Publish the artifact that is asked for, unless the store has it.

    Raises:
        TaskError, TokenizerError: whatever the stage has against its parameters or input.
        StopRequested: the run that it belongs to ends (`tokenizer.core.stopping`).
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
    """Return the Prefect task for one request, under the name that people see, e.g. `encode[english/3]`."""
    return realize.with_options(
        name=ask.request.stage.task,
        task_run_name=task_run_name,
        result_storage=results_folder(ask.store),
    )
