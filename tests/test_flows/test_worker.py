"""A worker of ours: it stops a run when that was asked for, and leaves none as running when it ends."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import words
from tests.test_flows.processes import processes_with
from tests.test_flows.served import LONG, POLL

pytestmark = [pytest.mark.server, pytest.mark.slow]

# Prefect decides at import which server it has, so this is a process of its own.
ATTEMPT = """
import asyncio, sys

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.states import Cancelling, Running
from tokmill.flows.server.worker import Attempt


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


@pytest.fixture
def tokmill(on_prefect: Tokmill) -> Tokmill:
    """The command line with the session's server."""
    return on_prefect


def test_a_run_is_stopped_when_that_was_asked_for_and_not_for_an_earlier_cancel(
    prefect_server: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPT], env=prefect_server, capture_output=True, text=True, check=False
    )

    said = ["heard of an old one: None", "asked: -15", "at the server: CANCELLED"]
    assert done.stdout.splitlines() == said, done.stderr


def test_work_without_a_server_or_a_pool_says_what_to_do(tokmill: Tokmill) -> None:
    unregistered = tokmill("server", "work")
    without = {name: value for name, value in tokmill.environment.items() if name != "PREFECT_API_URL"}
    alone = Tokmill(tokmill.folder, without)("server", "work")

    assert (unregistered.code, alone.code) == (1, 1)
    assert "register this folder with `tokmill server deploy`" in unregistered.err
    assert "no Prefect server is configured" in alone.err


def test_a_worker_that_is_stopped_or_killed_leaves_no_run_as_running(tokmill: Tokmill) -> None:
    generator = random.Random(1)
    (tokmill.folder / "long").mkdir()
    for number in range(60):
        text = words(generator, 10_000)
        (tokmill.folder / "long" / f"{number}.txt").write_text(text, encoding="utf-8")
    (tokmill.folder / "long.toml").write_text(LONG, encoding="utf-8")
    deployed = json.loads(tokmill("server", "deploy", "--json").out)
    (name,) = [each for each in deployed["deployments"] if each.endswith(".long")]

    with httpx.Client(base_url=deployed["api"], timeout=60) as api:
        with at_work(tokmill, api, name) as (worker, stopped):
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        after_stop = state_of(api, stopped)
        with at_work(tokmill, api, name) as (worker, killed):  # the one before holds its place no more
            for process in (worker.pid, *processes_with("PREFECT__FLOW_RUN_ID", killed)):
                os.kill(process, signal.SIGKILL)
            worker.wait(60)
        after_kill = state_of(api, killed)
        told = tokmill("doctor", "--no-speed", "--json")
        freed = json.loads(tokmill("doctor", "--no-speed", "--json", "--free").out)
        after_free = state_of(api, killed)

    assert (after_stop, after_kill, after_free) == ("CRASHED", "RUNNING", "CRASHED")
    found = [each["text"] for each in json.loads(told.out)["findings"] if "--free" in each["text"]]
    assert told.code == 1
    assert any(killed in text for text in found)
    assert any(f".{worker.pid}." in text for text in found)
    assert [each.partition(" ")[0] for each in freed["server"]["freed"]] == ["run", "worker"]


@contextmanager
def at_work(tokmill: Tokmill, api: httpx.Client, name: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a worker and a run of a deployment; yield both once the run is at work."""
    worker = Tokmill(tokmill.folder, {**tokmill.environment, "PREFECT_WORKER_QUERY_SECONDS": "1"}).start(
        "server", "work"
    )
    try:
        deployment = api.get(f"/deployments/name/{name}").raise_for_status().json()
        body = {"parameters": {**deployment["parameters"], "train": {"vocab_size": 1000 + worker.pid}}}
        made = api.post(f"/deployments/{deployment['id']}/create_flow_run", json=body).raise_for_status()
        record = tokmill.store / "runs" / f"{made.json()['id']}.json"
        wait(lambda: record.exists() and state_of(api, record.stem) == "RUNNING")
        yield worker, record.stem
    finally:
        worker.kill()
        worker.communicate()


def state_of(api: httpx.Client, run_id: str) -> Any:
    """Return the type of a run's state at the server."""
    return api.get(f"/flow_runs/{run_id}").raise_for_status().json()["state_type"]


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if that takes too long."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it did not come to be"
        POLL.wait(0.1)
