"""Prefect's worker, which ends the runs that the server shows as active though their process is gone.

Two things tell that a run is dead: its heartbeat in the store (`tasks.store.leases`), and the name of its
worker, which says which process that is. Called with a store and the arguments of Prefect's command line.
"""

import gc
import hashlib
import re
import runpy
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from tokmill.flows.prefect.ending import cancel_tasks
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import Process
from tokmill.tasks.store.runs import Run, read_run, run_path, write_run

LOOK_SECONDS: Final = 20
UNANSWERED: Final = (httpx.HTTPError, ObjectNotFound, RuntimeError)
"""What Prefect's client raises if a server does not answer; RuntimeError is of the first request alone."""

_FLOWS: Final = [
    *("build-corpus", "train-tokenizer", "audit-tokenizer", "sweep", "repack"),
    *("verify-store", "collect-garbage"),
]
_MOST: Final = 200  # of what the server answers at most
_LATEST: Final = 20  # cancelled runs that are looked at
_ACTIVE: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_NAMED = re.compile(r"(?P<host>.+)\.(?P<pid>[0-9]+)\.(?P<boot>[0-9a-f]{8})\.(?P<began>[0-9]+)")


def worker_name(process: Process) -> str:
    """Return the name of the worker of a process, by which it is found out whether it is alive."""
    return f"{process.host}.{process.pid}.{_digest(process.boot)}.{process.began}"


def is_gone(worker: str) -> bool:
    """Whether the worker of a name was a process of this machine that has ended."""
    named = _NAMED.fullmatch(worker)
    if named is None or named["boot"] != _digest(Process.own().boot):
        return False
    return Process.of(int(named["pid"])).began != int(named["began"])


def reconcile(store: Store, client: SyncPrefectClient, gone: Iterable[str] = ()) -> list[str]:
    """End the dead runs that the server shows as going on, also of `gone` workers; return their names.

    A cancelled run that could not ask the server has recorded a crash in the store; that is corrected.

    Raises:
        StoreError: the end of a run cannot be written to the store.
    """
    ended = []
    for run, state in dead_runs(store, client, gone):
        client.set_flow_run_state(run.id, state, force=True)
        ended.append(run.name)
    for run in _runs(client, [StateType.CANCELLED], _LATEST):
        recorded = _crashed_attempt(store, run)
        if recorded is not None:
            write_run(store.layout, recorded.model_copy(update={"state": "cancelled"}))
            cancel_tasks(recorded.run_id)
    return ended


def dead_runs(
    store: Store | None, client: SyncPrefectClient, gone: Iterable[str] = ()
) -> Iterator[tuple[FlowRun, State[None]]]:
    """Yield the dead runs that the server shows as going on, each with its true state; see `reconcile`."""
    runs, missing = _runs(client, _ACTIVE, _MOST), set(gone)
    if store is not None:
        store.catalog.settle()
    for run in runs:
        kind = None if run.state is None else run.state.type
        recorded = None if store is None or kind is StateType.PENDING else _crashed_attempt(store, run)
        message = _end_with_worker(run, missing)
        if recorded is not None:
            message = recorded.message or "its process is gone"
        if message:
            state = Cancelled if kind is StateType.CANCELLING else Crashed
            yield run, state(message=message)


def _runs(client: SyncPrefectClient, states: list[StateType], most: int) -> list[FlowRun]:
    """Return the latest runs of our flows that the server has in one of these states."""
    return client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": _FLOWS}}),
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": states}}}),
        sort=FlowRunSort.END_TIME_DESC,
        limit=most,
    )


def _crashed_attempt(store: Store, run: FlowRun) -> Run | None:
    """Return the store's record of a run, if it says that this attempt crashed."""
    try:
        recorded = read_run(run_path(store.layout.runs, str(run.id)))
    except StoreError:  # a run in another store, of another flow, or one that has just started
        return None
    return recorded if (recorded.state, len(recorded.earlier) + 1) == ("crashed", run.run_count) else None


def _end_with_worker(run: FlowRun, missing: set[str]) -> str:
    """Return that a run's worker is gone, and its own process, too; empty if it is not."""
    worker, pid = str((run.labels or {}).get("prefect.worker.name", "")), run.infrastructure_pid or ""
    alive = pid.isdecimal() and bool(Process.of(int(pid)).began)
    # one that is retried still names the worker before
    since = datetime.now(UTC) - timedelta(seconds=LOOK_SECONDS)
    is_settled = run.state is None or run.state.timestamp < since
    if worker in missing or (is_gone(worker) and not alive and is_settled):
        return f"its worker {worker} is gone: it was stopped or killed, or its machine went down"
    return ""


def all_deployments(client: SyncPrefectClient, names: str = "") -> Iterator[DeploymentResponse]:
    """Yield the deployments of a server whose names contain a word, page by page."""
    alike, offset = DeploymentFilter.model_validate({"name": {"like_": names}}), 0
    while page := client.read_deployments(deployment_filter=alike, limit=_MOST, offset=offset):
        yield from page
        offset += len(page)


def dead_workers(client: SyncPrefectClient, pool: str) -> list[str]:
    """Return the names of a pool's workers whose process has ended, or that do not report any more."""
    workers = client.read_workers_for_work_pool(pool)
    return [each.name for each in workers if is_gone(each.name) or each.status is WorkerStatus.OFFLINE]


def forget_worker(client: SyncPrefectClient, pool: str, worker: str) -> None:
    """Remove a worker that has ended from a pool's list."""
    path = {"work_pool_name": pool, "name": worker}
    client.request("DELETE", "/work_pools/{work_pool_name}/workers/{name}", path_params=path)


def _digest(boot: str) -> str:
    return hashlib.blake2b(boot.encode(), digest_size=4).hexdigest()


def main() -> None:
    """Run Prefect's command line with this process's arguments, and end dead runs meanwhile."""
    # Prefect looks for hooks of a cancelled run here, and would import the flows while the run waits
    from tokmill.flows.prefect import flow  # noqa: F401, PLC0415

    store, name = Store.open(sys.argv.pop(1)), worker_name(Process.own())
    pool = sys.argv[sys.argv.index("--pool") + 1]
    sys.argv += ["--name", name]
    gc.freeze()  # what is imported is never garbage, and need not be looked through, at the end either
    stopped = threading.Event()

    def keep_looking() -> None:
        _look(store, pool)
        while not stopped.wait(LOOK_SECONDS):
            _look(store, pool)

    threading.Thread(target=keep_looking, name="dead runs", daemon=True).start()
    try:
        runpy.run_module("prefect", run_name="__main__", alter_sys=True)
    finally:
        stopped.set()
        _look(store, pool, gone=[name])


def _look(store: Store, pool: str, gone: Sequence[str] = ()) -> None:
    """End dead runs, and those of workers that are `gone`, which are removed from the pool's list."""
    # A server or bucket that does not answer, or a full disk: the next look, or the next worker, does it.
    with suppress(*UNANSWERED, TaskError), get_client(sync_client=True) as client:
        for run in reconcile(store, client, gone):
            line = f"the run {run} is marked as crashed: its process no longer exists"
            print(line, flush=True)  # noqa: T201 - the worker's log
        for worker in gone:
            forget_worker(client, pool, worker)


if __name__ == "__main__":
    main()
