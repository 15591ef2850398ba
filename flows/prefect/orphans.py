"""Finds the runs that Prefect's server shows as active though their process is gone, and ends them there.

If a run, its worker or its server is killed, the server shows the run as Running, or Cancelling, for ever,
and the next one waits for its place. Two things tell that a run is dead: the store, where each run has a
heartbeat (`tasks.store.runs.settle`), and the name of its worker, which says which process of which machine
that is. `tokmill up` and `tokmill server work` end dead runs while they work, `tokmill doctor` shows them.

The other way round, a cancelled run that could not ask the server has recorded a crash, or nothing
(`flows.prefect.ending`). That is corrected in the store.
"""

import hashlib
import logging
import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Crashed

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import Process
from tokmill.tasks.store.runs import Run, read_run, run_path, write_run

LOOK_SECONDS: Final = 20
UNANSWERED: Final = (httpx.HTTPError, ObjectNotFound, RuntimeError)
"""What Prefect's client raises if a server does not answer; RuntimeError is of the first request alone."""

_LOG = logging.getLogger(__name__)
_RECORDED: Final = ("build-corpus", "train-tokenizer", "audit-tokenizer", "sweep", "repack")
_FLOWS: Final = [*_RECORDED, "verify-store", "collect-garbage"]
_MOST: Final = 200  # of what the server answers at most
_LATEST: Final = 20  # cancelled runs that are looked at
_ACTIVE: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_UNFINISHED: Final = [StateType.RUNNING, StateType.PENDING]
_CANCELLED: Final = "the run was cancelled before this was done"
_ANSWER_SECONDS, _RECORDED_SECONDS, _ASK_SECONDS = 2.0, 2.0, 0.2
_WORKER, _POOL = "prefect.worker.name", "prefect.work-pool.name"
_NAMED = re.compile(r"(?P<host>.+)\.(?P<pid>[0-9]+)\.(?P<boot>[0-9a-f]{8})\.(?P<began>[0-9]+)")


def worker_name(process: Process) -> str:
    """Return the name of the worker of a process, by which it is found out whether it is alive."""
    return f"{process.host}.{process.pid}.{_digest(process.boot)}.{process.began}"


def is_gone(worker: str) -> bool:
    """Whether the worker of a name was a process of this machine that has ended."""
    named = _NAMED.fullmatch(worker)
    here = Process.of(int(named["pid"])) if named else Process()
    if named is None or named["boot"] != _digest(Process.own().boot):
        return False
    return here.began != int(named["began"])


def reconcile(store: Store, client: SyncPrefectClient, gone: Iterable[str] = ()) -> list[str]:
    """End the dead runs that the server shows as going on, also of `gone` workers; return their names.

    Runs that the server has as cancelled, and the store as crashed, become cancelled in the store.

    Raises:
        StoreError: the end of a run cannot be written to the store.
    """
    ended = []
    for run, state in dead_runs(store, client, gone):
        client.set_flow_run_state(run.id, state, force=True)
        ended.append(run.name)
    for run in _held(client, [StateType.CANCELLED], _LATEST):
        recorded = _attempt_in(store, run)
        if recorded is not None and recorded.state == "crashed":
            write_run(store.layout, recorded.model_copy(update={"state": "cancelled"}))
            cancel_tasks(recorded.run_id)
    return ended


def dead_runs(
    store: Store | None, client: SyncPrefectClient, gone: Iterable[str] = ()
) -> Iterator[tuple[FlowRun, State[None]]]:
    """Yield the dead runs that the server shows as going on, each with its true state; see `reconcile`."""
    held = _held(client, _ACTIVE, _MOST)
    if store is not None:
        store.catalog.settle()
    missing = set(gone)
    for run in held:
        message = _end_in(store, run) or _end_with_worker(run, missing)
        if message:
            cancelling = run.state is not None and run.state.type is StateType.CANCELLING
            yield run, Cancelled(message=message) if cancelling else Crashed(message=message)


def _held(client: SyncPrefectClient, states: list[StateType], most: int) -> list[FlowRun]:
    """Return the latest runs of our flows that the server has in one of these states."""
    wanted = FlowRunFilterState(type=FlowRunFilterStateType(any_=states))
    return client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=_FLOWS)),
        flow_run_filter=FlowRunFilter(state=wanted),
        sort=FlowRunSort.END_TIME_DESC,
        limit=most,
    )


def _end_in(store: Store | None, held: FlowRun) -> str:
    """Return how a run ended by the store's record; empty if that does not say that it crashed."""
    if store is None or held.state is None or held.state.type is StateType.PENDING:
        return ""
    recorded = _attempt_in(store, held)
    if recorded is None or recorded.state != "crashed":
        return ""
    return recorded.message or "its process is gone"


def _attempt_in(store: Store, held: FlowRun) -> Run | None:
    """Return the store's record of a run; None if it is of another attempt, or there is none."""
    try:
        recorded = read_run(run_path(store.layout.runs, str(held.id)))
    except StoreError:  # a run in another store, of another flow, or one that has just started
        return None
    return recorded if len(recorded.earlier) + 1 == held.run_count else None


def _end_with_worker(held: FlowRun, missing: set[str]) -> str:
    """Return that a run's worker is gone, and its own process, too; empty if it is not."""
    worker, pid = str((held.labels or {}).get(_WORKER, "")), held.infrastructure_pid or ""
    alive = pid.isdecimal() and bool(Process.of(int(pid)).began)
    if worker in missing or (is_gone(worker) and not alive and _is_settled(held)):
        return f"its worker {worker} is gone: it was stopped or killed, or its machine went down"
    return ""


def _is_settled(held: FlowRun) -> bool:
    """Whether a run has had its state for a while; one that is retried still names the worker before."""
    since = datetime.now(UTC) - timedelta(seconds=LOOK_SECONDS)
    return held.state is None or held.state.timestamp < since


def dead_workers(client: SyncPrefectClient, pool: str) -> list[str]:
    """Return the names of a pool's workers whose process has ended, or that do not report any more."""
    workers = client.read_workers_for_work_pool(pool)
    return [each.name for each in workers if is_gone(each.name) or each.status is WorkerStatus.OFFLINE]


def forget_worker(client: SyncPrefectClient, pool: str, worker: str) -> None:
    """Remove a worker that has ended from a pool's list."""
    path = {"work_pool_name": pool, "name": worker}
    client.request("DELETE", "/work_pools/{work_pool_name}/workers/{name}", path_params=path)


def cancel_tasks(run_id: str, submitted: Collection[UUID] | None = None) -> None:
    """Report the tasks of a cancelled run that have not reported an end of their own as Cancelled.

    A server may record a second later what it was told, so it is asked until it knows all task runs that were
    submitted; for two seconds if these are not known.
    """
    until, unknown = time.monotonic() + _RECORDED_SECONDS, set(submitted or ())
    with last_words(run_id) as client:
        while True:
            unknown -= _heard_of(client, list(unknown)[:_MOST])
            for task_run_id in _unfinished(client, UUID(run_id)):
                client.set_task_run_state(task_run_id, Cancelled(message=_CANCELLED), force=True)
            if time.monotonic() > until or (submitted is not None and not unknown):
                return
            time.sleep(_ASK_SECONDS)


def _heard_of(client: SyncPrefectClient, asked: list[UUID]) -> set[UUID]:
    wanted = TaskRunFilter(id=TaskRunFilterId(any_=asked))
    return {task_run.id for task_run in client.read_task_runs(task_run_filter=wanted)}


def _unfinished(client: SyncPrefectClient, run_id: UUID) -> list[UUID]:
    wanted = TaskRunFilterState(type=TaskRunFilterStateType(any_=_UNFINISHED))
    of_this_run = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    found = client.read_task_runs(flow_run_filter=of_this_run, task_run_filter=TaskRunFilter(state=wanted))
    return [task_run.id for task_run in found]


@contextmanager
def last_words(run_id: str) -> Iterator[SyncPrefectClient]:
    """Yield a client that does not wait long; whatever fails in this block is only noted."""
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True, httpx_settings={"timeout": _ANSWER_SECONDS}) as client,
        ):
            yield client
    except Exception as error:  # the end of the run must not depend on the server
        _LOG.info("cannot reach the server at the end of run %s: %s", run_id, error)


def _digest(boot: str) -> str:
    return hashlib.blake2b(boot.encode(), digest_size=4).hexdigest()
