"""Corrects the state of dead runs at Prefect's server.

If a run or its server is killed, the server shows the run as Running, or Cancelling, for ever. The store
knows that its process is gone (`tasks.store.runs.settle`), and the server is given the state in the store.
"""

import gc
import os

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled, Crashed

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path

FLOWS = ["build-corpus", "train-tokenizer", "audit-tokenizer", "sweep", "repack"]
_MOST = 200
_ACTIVE = [StateType.RUNNING, StateType.CANCELLING]


def reconcile(store: Store, client: SyncPrefectClient) -> list[str]:
    """Correct the dead runs of `store` that Prefect's server shows as active; return their names.

    Args:
        store: whose runs are looked at.
        client: of the server.

    Raises:
        StoreError: the end of a run cannot be written to the store.
    """
    store.catalog.settle()
    wanted = FlowRunFilterState(type=FlowRunFilterStateType(any_=_ACTIVE))
    found = client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=FLOWS)),
        flow_run_filter=FlowRunFilter(state=wanted),
        limit=_MOST,
    )
    return [run.name for run in found if _correct(client, store, run)]


def _correct(client: SyncPrefectClient, store: Store, held: FlowRun) -> bool:
    try:
        known = read_run(run_path(store.layout.runs, str(held.id)))
    except StoreError:  # a run in another store, or one that has just started
        return False
    if known.state != "crashed":
        return False
    client.set_flow_run_state(held.id, _ended(held, known), force=True)
    return True


def _ended(held: FlowRun, known: Run) -> State[None]:
    if held.state is not None and held.state.type is StateType.CANCELLING:
        return Cancelled(message=known.message)
    return Crashed(message=known.message)


if __name__ == "__main__":
    gc.freeze()  # else Python looks for cycles in all of Prefect before it ends, 0.2 s
    with get_client(sync_client=True) as opened:
        for name in reconcile(Store.open(os.environ["TOKMILL_STORE"]), opened):
            print(name)  # noqa: T201 - for `tokmill up`
