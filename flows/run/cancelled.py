"""What Prefect's worker calls for a run that it has cancelled, once the run's process is gone.

The run itself records its end as soon as the signal comes, and asks the server for the reason (`ending`). If
the server does not answer within its time, or the process was killed before that, the store has the run as
crashed. By now the reason is known, and so the record is corrected; so are its tasks, which the server would
show as Running for ever.
"""

from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State

from tokmill.flows.profile import load_profile
from tokmill.flows.profile.served import require_served
from tokmill.flows.run.ending import cancel_tasks
from tokmill.flows.run.filled import ONLY_IN_FILES, overrides_of
from tokmill.flows.run.machine import Machine
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import read_run, run_path, write_run


def note_cancelled(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Have the store know a cancelled run as cancelled.

    Args:
        flow: which was run; any of ours that is recorded.
        flow_run: with its parameters.
        state: Cancelling.

    Raises:
        ProfileError: the profile that names the store cannot be loaded.
        StoreError: the store cannot be read or written, or the run had not begun when it was cancelled.
    """
    store = _store_of(flow_run.parameters or {})
    store.catalog.settle()
    run = read_run(run_path(store.layout.runs, str(flow_run.id)))
    is_this_attempt = len(run.earlier) + 1 == flow_run.run_count
    if run.state == "crashed" and is_this_attempt:
        write_run(store.layout, run.model_copy(update={"state": "cancelled"}))
        cancel_tasks(run.run_id)


def _store_of(given: dict[str, Any]) -> Store:
    """Return the store of a run with these parameters, with the credentials that its profile names."""
    profile = str(given["profile"])
    require_served(profile)
    loaded = load_profile(profile, overrides_of({}, given.get("more") or (), {}), fixed=ONLY_IN_FILES)
    return Machine.of(loaded.execution, store=given.get("store")).open_store()
