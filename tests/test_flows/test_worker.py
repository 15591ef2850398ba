"""A worker of ours leaves no run as running when it ends, and a cancelled run no task."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.test_flows.commands import Tokmill, processes_with
from tests.test_flows.served import LONG, Service, write_long
from tests.test_flows.stopped import wait_until
from tokmill.flows.prefect.ending import cancel_tasks

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_work_without_a_server_or_a_pool_says_what_to_do(on_prefect: Tokmill) -> None:
    tokmill = on_prefect
    unregistered = tokmill("server", "work")
    without = {name: value for name, value in tokmill.environment.items() if name != "PREFECT_API_URL"}
    alone = Tokmill(tokmill.folder, without)("server", "work")

    assert (unregistered.code, alone.code) == (1, 1)
    assert "register this folder with `tokmill server deploy`" in unregistered.err
    assert "no Prefect server is configured" in alone.err


def test_a_worker_that_is_stopped_or_killed_leaves_no_run_as_running(on_prefect: Tokmill) -> None:
    tokmill = on_prefect
    write_long(tokmill.folder, 60)
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
        wait_until(lambda: record.exists() and state_of(api, record.stem) == "RUNNING", "it was running")
        yield worker, record.stem
    finally:
        worker.kill()
        worker.communicate()


def state_of(api: httpx.Client, run_id: str) -> Any:
    """Return the type of a run's state at the server."""
    return api.get(f"/flow_runs/{run_id}").raise_for_status().json()["state_type"]


def test_a_task_run_that_the_server_hears_of_late_is_cancelled_too(service: Service) -> None:
    flow = service.call("/flows/", {"name": "late"})
    run = service.call("/flow_runs/", {"flow_id": flow["id"], "state": {"type": "RUNNING"}})
    early, late = uuid4(), uuid4()
    said = {"flow_run_id": run["id"], "task_key": "late", "state": {"type": "RUNNING"}}
    service.call("/task_runs/", {**said, "id": str(early), "dynamic_key": "early"})
    hears = Timer(0.5, service.call, ["/task_runs/", {**said, "id": str(late), "dynamic_key": "late"}])

    hears.start()
    with temporary_settings({PREFECT_API_URL: f"{service.url}/api"}):
        cancel_tasks(run["id"])
    hears.join()

    states = [service.call(f"/task_runs/{task_run}")["state_type"] for task_run in (early, late)]
    assert states == ["CANCELLED", "CANCELLED"]
