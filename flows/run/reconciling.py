"""What Prefect's server holds of runs whose process is gone is put right.

A run that was killed, or whose server was, stays Running there for ever, and a cancel Cancelling. The
store's own account of a run says how it ended (`tasks.store.settling`); the server is told.
"""

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

FLOW = "build-corpus"
_MOST = 200
_UNDER_WAY = [StateType.RUNNING, StateType.CANCELLING]


def reconcile(store: Store) -> list[str]:
    """Tell Prefect's server of runs in `store` that are gone and under way there; return their names.

    Raises:
        StoreError: the end of a run cannot be noted in the store.
    """
    store.catalog.settle()
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilterState(type=FlowRunFilterStateType(any_=_UNDER_WAY))
        found = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])),
            flow_run_filter=FlowRunFilter(state=wanted),
            limit=_MOST,
        )
        return [run.name for run in found if _put_right(client, store, run)]


def _put_right(client: SyncPrefectClient, store: Store, held: FlowRun) -> bool:
    try:
        known = read_run(run_path(store.layout.runs, str(held.id)))
    except StoreError:  # a run in another store, or one that has just begun
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
    for name in reconcile(Store.open(os.environ["TOKMILL_STORE"])):
        print(name)  # noqa: T201 - for `tokmill up`
