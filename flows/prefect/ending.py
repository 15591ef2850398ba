"""The end of a run that does not complete: failed, crashed, cancelled or suspended.

An `Exception` is a failure. Any other `BaseException` ended the flow from outside, and its type is ambiguous:
Prefect sends the same signal when a run is cancelled and when its worker is stopped. So the server is asked
for the run's state. If it does not answer, a signal counts as a crash and Ctrl-C as a cancellation.

After a signal there is little time (`flows.process`). So the tasks are stopped and the end is recorded first,
before anything is closed. Tasks that the signal ended without a word are then reported as Cancelled: Prefect
would show them as Running for ever.

If the server does not answer within that time, or the process is killed before, the store has the run as
crashed until `flows.prefect.orphans` compares it with the server's.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.exceptions import Abort, Pause, TerminationSignal

from tokmill.flows.prefect.orphans import cancel_tasks, last_words
from tokmill.flows.process import end_soon
from tokmill.flows.run.events import RunState
from tokmill.flows.run.record import found_in, note_end, note_refusals
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import State

_RUN_STATES: dict[StateType, State] = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}


class Ending:
    """Records the end of a run that does not complete.

    Attributes:
        task_runs: title of each task → its task run, of those that were submitted; empty, or set it.
    """

    def __init__(self, store: Store, run_id: str, state: RunState) -> None:
        self._store = store
        self._run_id = run_id
        self._state = state
        self._noted = False
        self.task_runs: Mapping[str, UUID] = {}

    def note(self, error: BaseException) -> None:
        """Record why the run ended, once; if that fails (a full disk), its own error is still reported.

        The end of a run that was ended from outside is recorded before the server is asked for the reason.
        """
        if self._noted:
            return
        self._noted, known = True, None
        with note_refusals(error):
            note_end(self._store, self._run_id, self._state, error, state_of(error), message_of(error))
            known = server_state(self._run_id)
            if known is not None:
                found, message = found_in(self._state), message_of(error)
                self._store.catalog.note_end(self._run_id, state=known, message=message, found=found)
        if known == "cancelled":
            cancel_tasks(self._run_id, set(self.task_runs.values()))

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
    with last_words(run_id) as client:
        state = client.read_flow_run(UUID(run_id)).state
        return _RUN_STATES.get(state.type) if state is not None else None
    return None
