"""A worker of ours: it stops a run when that was asked for, and not when it only hears of it once more."""

import subprocess
import sys

import pytest

from tests.test_flows.commands import Tokmill

pytestmark = [pytest.mark.server, pytest.mark.slow]

# Prefect decides at import which server it has, so this is a process of its own.
ATTEMPT = """
import asyncio, sys

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.states import Cancelling, Running
from tokmill.flows.server.attempt import Attempt


@flow
def kept_busy(): ...


async def main():
    async with Attempt() as attempt, get_client() as client:
        flow_run = await client.create_flow_run(kept_busy, state=Running())
        starter = EngineCommandStarter(
            command=f"{sys.executable} -c 'import signal; signal.pause()'",
            control_channel=attempt.control_channel,
        )
        executor = attempt.create_executor(flow_run, starter, resolve_flow=resolved, propose_submitting=False)
        async with asyncio.TaskGroup() as group:
            started = asyncio.get_running_loop().create_future()
            started.started = started.set_result
            work = group.create_task(executor.submit(task_status=started))
            process = await started
            # as for a cancel of an earlier attempt
            await attempt._cancellation_manager.cancel_by_id(flow_run.id)
            print("heard of an old one:", process.returncode)
            await client.set_flow_run_state(flow_run.id, Cancelling(), force=True)
            await work
            print("asked:", process.returncode)
        async with asyncio.timeout(60):
            while not (state := (await client.read_flow_run(flow_run.id)).state).is_final():
                await asyncio.sleep(0.1)
        print("at the server:", state.type.value)


async def resolved(flow_run):
    return kept_busy


asyncio.run(main())
"""


def test_a_run_is_stopped_when_that_was_asked_for_and_not_for_an_earlier_cancel(
    prefect_server: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPT], env=prefect_server, capture_output=True, text=True, check=False
    )

    said = ["heard of an old one: None", "asked: -15", "at the server: CANCELLED"]
    assert done.stdout.splitlines() == said, done.stderr


def test_work_without_a_server_or_a_pool_says_what_to_do(tokmill: Tokmill) -> None:
    unregistered = tokmill("work")
    without = {name: value for name, value in tokmill.environment.items() if name != "PREFECT_API_URL"}
    alone = Tokmill(tokmill.folder, without)("work")

    assert (unregistered.code, alone.code) == (1, 1)
    assert "register this folder with `tokmill deploy`" in unregistered.err
    assert "no Prefect server is configured" in alone.err
