"""How a run ended that raised: failed, crashed, cancelled or suspended.

An `Exception` is a failure. Anything else ended the flow from outside, and its type alone does not say why:
Prefect ends a process that is cancelled and one whose worker is stopped by the same signal. So the server
is asked what it holds of the run; where it gives no answer, a signal is a crash and Ctrl-C a person's wish.
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
_AS_HELD: dict[StateType, State] = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}


def state_of(error: BaseException) -> State:
    """Return the state of a run that ended with `error`, as far as that says."""
    if isinstance(error, Exception):
        return "failed"
    if isinstance(error, Pause):
        return "suspended"
    return "cancelled" if isinstance(error, KeyboardInterrupt | Abort) else "crashed"


def told(error: BaseException) -> str:
    """Return what a run says of its end."""
    if isinstance(error, TerminationSignal):
        return f"it was sent signal {error.signal}"
    return str(error) or type(error).__name__


def held_state(run_id: str) -> State | None:
    """Return `cancelled` or `suspended` where Prefect's server holds a run for that; None otherwise."""
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True, httpx_settings={"timeout": _ANSWER_SECONDS}) as client,
        ):
            state = client.read_flow_run(UUID(run_id)).state
    except Exception as error:  # whatever keeps it from answering: the run ends all the same
        _LOG.info("the server was not reached at the end of run %s: %s", run_id, error)
        return None
    return _AS_HELD.get(state.type) if state is not None else None
