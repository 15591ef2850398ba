"""The end of a run that does not complete: failed, crashed, cancelled or suspended.

Prefect sends the same signal when a run is cancelled and when its worker is stopped, so the server is asked;
without an answer, a signal is a crash and Ctrl-C a cancellation. There is little time: the end comes first.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import State as PrefectState
from prefect.client.schemas.objects import StateType
from prefect.exceptions import Abort, Pause, TerminationSignal
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled

from tokmill.flows.process import end_soon
from tokmill.flows.run.events import RunState
from tokmill.flows.run.record import found_in, note_end, note_refusals
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import State

_LOG = logging.getLogger(__name__)
_RUN_STATES: Final[dict[StateType, State]] = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}
_ANSWER_SECONDS: Final = 2.0
_LOOKS, _PAUSE_SECONDS = 4, 0.4


class Ending:
    """Records the end of a run that does not complete."""

    def __init__(self, store: Store, run_id: str, state: RunState) -> None:
        self._store = store
        self._run_id = run_id
        self._state = state
        self._noted = False

    def note(self, error: BaseException) -> None:
        """Record why the run ended, once; if that fails (a full disk), its own error is still reported.

        The end of a run that was ended from outside is recorded before the server is asked for the reason.
        """
        if self._noted:
            return
        self._noted, known = True, None
        message = f"received signal {error.signal}" if isinstance(error, TerminationSignal) else ""
        with note_refusals(error):
            note_end(self._store, self._run_id, self._state, error, _state_of(error), message)
            known = _server_state(self._run_id)
            if known is not None:
                words, found = message or str(error) or type(error).__name__, found_in(self._state)
                self._store.catalog.note_end(self._run_id, state=known, message=words, found=found)
        if known == "cancelled":
            cancel_tasks(self._run_id)

    @contextmanager
    def at_once(self, stop: Callable[[], None]) -> Iterator[None]:
        """Stop the run's tasks, and note its end, as soon as a signal ends this block."""
        try:
            yield
        except (TerminationSignal, SystemExit) as error:
            # Ray, while it starts, makes a SystemExit of SIGTERM
            number = error.signal if isinstance(error, TerminationSignal) else signal.SIGTERM
            end_soon(int(number))  # however long it takes to stop the tasks
            stop()
            self.note(error)
            raise


def _state_of(error: BaseException) -> State:
    """Return how a run was ended from outside, judging by the exception alone."""
    if isinstance(error, Pause):
        return "suspended"
    return "cancelled" if isinstance(error, KeyboardInterrupt | Abort) else "crashed"


def _server_state(run_id: str) -> State | None:
    """Return `cancelled` or `suspended` if Prefect's server has the run in that state; None otherwise."""
    with _last_words(run_id) as client:
        state = client.read_flow_run(UUID(run_id)).state
        return _RUN_STATES.get(state.type) if state is not None else None
    return None


def cancel_tasks(run_id: str) -> None:
    """Report the tasks of a cancelled run that have not reported an end of their own as Cancelled.

    A server hears of a task run a second late, so it is asked for a while.
    """
    cancelled: PrefectState[None] = Cancelled(message="the run was cancelled before this was done")
    of_this_run = FlowRunFilter.model_validate({"id": {"any_": [run_id]}})
    unfinished = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    with _last_words(run_id) as client:
        for _ in range(_LOOKS):
            for each in client.read_task_runs(flow_run_filter=of_this_run, task_run_filter=unfinished):
                client.set_task_run_state(each.id, cancelled, force=True)
            time.sleep(_PAUSE_SECONDS)


@contextmanager
def _last_words(run_id: str) -> Iterator[SyncPrefectClient]:
    """Yield a client that does not wait long; whatever fails in this block is only noted."""
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True, httpx_settings={"timeout": _ANSWER_SECONDS}) as client,
        ):
            yield client
    except Exception as error:  # the end of the run must not depend on the server
        _LOG.info("cannot reach the server at the end of run %s: %s", run_id, error)
