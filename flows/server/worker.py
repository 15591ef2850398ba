"""Prefect's worker, which has our flows imported before it takes a run, and ends the runs of dead workers.

It is called with a store and the arguments of Prefect's command line. It is named after its process
(`flows.server.orphans`), so that others find out that it has died; when it is stopped, it ends its own
runs at the server.

Prefect's worker opens a stream of events for each attempt of a run, and the server repeats on it what
happened in the last minute. So an attempt that is begun within a minute of a cancel (a person cancels,
changes the profile and presses Retry) hears of that cancel again, and Prefect would stop it without a look
at the state of the run. Here the server is asked first.

Prefect's worker looks for hooks of a cancelled run in its own process, and so must import the flow. At the
first one that would take seconds of those in which the run is to be shown as Cancelled.
"""

import gc
import runpy
import sys
from importlib import import_module
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.workers import process

from tokmill.flows.server.orphans import reconciling, worker_name
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import Process


def main() -> None:
    """Run Prefect's command line with this process's arguments."""
    store, name = Store.open(sys.argv.pop(1)), worker_name(Process.own())
    pool = sys.argv[sys.argv.index("--pool") + 1]
    sys.argv += ["--name", name]
    import_module("tokmill.flows.run.flow")  # by name: what runs flows imports what serves them
    gc.freeze()  # what is imported is never garbage, and need not be looked through, at the end either
    check_cancels()
    with reconciling(store, _say, pool, name):
        runpy.run_module("prefect", run_name="__main__", alter_sys=True)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the worker's log


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


if __name__ == "__main__":
    main()
