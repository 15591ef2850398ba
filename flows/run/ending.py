"""Determines the state of a run that ended with an exception: failed, crashed, cancelled or suspended.

An `Exception` is a failure. Any other `BaseException` ended the flow from outside, and its type is ambiguous:
Prefect sends the same signal when a run is cancelled and when its worker is stopped. So the server is asked
for the run's state. If it does not answer, a signal counts as a crash and Ctrl-C as a cancellation.
"""

import logging
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from tokmill.tasks.store.runs import State

_LOG = logging.getLogger(__name__)
_ANSWER_SECONDS = 2.0
_RUN_STATES: dict[StateType, State] = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}


def state_of(error: BaseException) -> State:
    """Return the state of a run that ended with `error`, judging by the exception alone."""
    if isinstance(error, Exception):
        return "failed"
    if isinstance(error, Pause):
        return "suspended"
    return "cancelled" if isinstance(error, KeyboardInterrupt | Abort) else "crashed"


def message_of(error: BaseException) -> str:
    """Return the message that goes into the run's record."""
    if isinstance(error, TerminationSignal):
        return f"received signal {error.signal}"
    return str(error) or type(error).__name__


def server_state(run_id: str) -> State | None:
    """Return `cancelled` or `suspended` if Prefect's server has the run in that state; None otherwise."""
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True, httpx_settings={"timeout": _ANSWER_SECONDS}) as client,
        ):
            state = client.read_flow_run(UUID(run_id)).state
    except Exception as error:  # the end of the run must not depend on the server
        _LOG.info("cannot reach the server at the end of run %s: %s", run_id, error)
        return None
    return _RUN_STATES.get(state.type) if state is not None else None
