"""What Prefect's worker calls for a run that it has cancelled, once the run's process is gone.

The run itself records its end as soon as the signal comes, and asks the server for the reason (`ending`). If
the server does not answer within its time, or the process was killed before that, the store has the run as
crashed. By now the reason is known, and so the record is corrected; so are its tasks, which the server would
show as Running for ever.

The worker goes on to start runs of other profiles, which inherit its environment. So where a profile names
credentials, they are used in a process of its own: `python -m tokmill.flows.run.cancelled RUN_ID`.
"""

import os
import sys
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State

from tokmill.flows.profile import Execution, load_profile
from tokmill.flows.profile.served import require_served
from tokmill.flows.run.ending import cancel_tasks
from tokmill.flows.run.filled import ONLY_IN_FILES, overrides_of
from tokmill.flows.run.machine import Machine
from tokmill.flows.server.registration import run_module
from tokmill.tasks.core.errors import StoreError
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
    given = flow_run.parameters or {}
    execution = _execution_of(given)
    if execution.credentials is None:
        _correct(flow_run, execution)
        return
    done = run_module([__name__, str(flow_run.id)], os.environ)
    if done.returncode:
        raise StoreError(
            f"the store of run {flow_run.id} could not be told of its end: {done.stderr.strip()}"
        )


def _execution_of(given: dict[str, Any]) -> Execution:
    """Return the machine settings of the profile of a run with these parameters."""
    profile = str(given["profile"])
    require_served(profile)
    return load_profile(profile, overrides_of({}, given.get("more") or (), {}), fixed=ONLY_IN_FILES).execution


def _correct(flow_run: FlowRun, execution: Execution) -> None:
    """Note a run as cancelled, with its tasks, if its own last word was another."""
    store = Machine.of(execution, store=(flow_run.parameters or {}).get("store")).open_store()
    store.catalog.settle()
    run = read_run(run_path(store.layout.runs, str(flow_run.id)))
    is_this_attempt = len(run.earlier) + 1 == flow_run.run_count
    if run.state == "crashed" and is_this_attempt:
        write_run(store.layout, run.model_copy(update={"state": "cancelled"}))
        cancel_tasks(run.run_id)


def _main(run_id: str) -> None:
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(UUID(run_id))
    _correct(flow_run, _execution_of(flow_run.parameters or {}))


if __name__ == "__main__":
    _main(sys.argv[1])
