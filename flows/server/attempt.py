"""Keeps a worker from cancelling a new attempt of a run for what was asked of the attempt before.

Prefect's worker opens a stream of events for each attempt, and the server repeats on it what happened in the
last minute. So an attempt that is begun within a minute of a cancel (a person cancels, changes the profile
and presses Retry) hears of that cancel again. If its process is there already when it does, as on a busy
machine, Prefect stops it without a look at the state of the run, which then is Crashed, or Cancelled once
more. Here the server is asked first.
"""

from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.workers import process


class Attempt(FlowRunExecutorContext):
    """What a worker keeps for an attempt of a run, with cancels checked at the server."""

    async def __aenter__(self) -> "Attempt":
        """Begin to listen."""
        await super().__aenter__()
        manager: Any = self._cancellation_manager
        manager.cancel_by_id = self._cancel_if_asked
        return self

    async def _cancel_if_asked(self, flow_run_id: UUID) -> None:
        if await self._cancelled(flow_run_id):
            return
        # a cancel is listened for until one is heard: listen again, and look whether one came in between
        self._observer.remove_in_flight_flow_run_id(flow_run_id)
        self._observer.add_in_flight_flow_run_id(flow_run_id)
        await self._cancelled(flow_run_id)

    async def _cancelled(self, flow_run_id: UUID) -> bool:
        flow_run = await self.client.read_flow_run(flow_run_id)
        asked = flow_run.state is not None and flow_run.state.type == StateType.CANCELLING
        if asked:
            await self._cancellation_manager.cancel(flow_run)
        return asked


def check_cancels() -> None:
    """Have this process's workers check cancels at the server."""
    setattr(process, "FlowRunExecutorContext", Attempt)  # noqa: B010 - mypy takes no class for another
