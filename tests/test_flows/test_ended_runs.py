"""The states, at Prefect and in the store, of runs that were ended from outside."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.test_flows.commands import processes_with
from tests.test_flows.served import LONG, POLL, Service, write_long
from tokmill.flows.prefect.orphans import cancel_tasks

pytestmark = [pytest.mark.server, pytest.mark.slow]

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def long_run(service: Service) -> str:
    """A profile with so many shards that its run can be interrupted."""
    write_long(service.tokmill.folder, 240)
    (service.tokmill.folder / "long.toml").write_text(LONG, encoding="utf-8")
    return "long.toml"


def started(service: Service, profile: str, name: str, vocab_size: int) -> str:
    """Start a run of the deployment, wait until it is running, and return its id."""
    deployment = service.deployment_of(profile)
    body = {"name": name, "parameters": {"profile": profile, "train": {"vocab_size": vocab_size}}}
    run = service.call(f"/deployments/{deployment['id']}/create_flow_run", body)
    at_work(service, run["id"])
    return str(run["id"])


def at_work(service: Service, run_id: str) -> None:
    """Wait until the store has a run as running."""
    wait(lambda: noted(service, run_id).get("state") == "running")


def noted(service: Service, run_id: str) -> dict[str, Any]:
    """Return the store's record of a run."""
    path = service.tokmill.store / "runs" / f"{run_id}.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if that takes too long."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, "it did not come to be"
        POLL.wait(0.1)


def set_state(service: Service, run_id: str, kind: str, name: str | None = None) -> None:
    """Set a run's state at Prefect's server."""
    state = {"type": kind, "name": name} if name else {"type": kind}
    service.call(f"/flow_runs/{run_id}/set_state", {"state": state, "force": True})


def test_a_cancelled_run_keeps_its_name_and_a_retry_does_not_erase_it(
    service: Service, long_run: str
) -> None:
    run_id = started(service, long_run, "For the board", 1001)

    set_state(service, run_id, "CANCELLING")
    ended = service.end_of(run_id)
    wait(lambda: noted(service, run_id)["state"] == "cancelled")
    first = noted(service, run_id)
    set_state(service, run_id, "SCHEDULED", "AwaitingRetry")
    wait(lambda: bool(noted(service, run_id)["earlier"]))
    set_state(service, run_id, "CANCELLING")
    service.end_of(run_id)
    wait(lambda: noted(service, run_id)["state"] == "cancelled")

    assert (ended["name"], ended["state_type"]) == ("For the board", "CANCELLED")
    assert (first["state"], first["earlier"]) == ("cancelled", [])
    again = noted(service, run_id)
    assert [attempt["state"] for attempt in (*again["earlier"], again)] == ["cancelled", "cancelled"]
    assert again["earlier"][0]["started"] == first["started"]


def test_a_suspended_run_is_no_cancelled_one(service: Service, long_run: str) -> None:
    run_id = started(service, long_run, "to be suspended", 1002)

    set_state(service, run_id, "PAUSED", "Suspended")
    wait(lambda: noted(service, run_id)["state"] != "running")

    assert noted(service, run_id)["state"] == "suspended"


def test_a_run_whose_server_did_not_answer_in_time_is_cancelled_none_the_less(
    service: Service, long_run: str
) -> None:
    """The run must record its end while the server stands still, and so cannot know that it is cancelled."""
    run_id = started(service, long_run, "unheard", 1003)
    (process,) = (pid for pid in processes_with("PREFECT__FLOW_RUN_ID", run_id) if is_engine(pid))
    server = server_of(service)
    os.kill(process, signal.SIGSTOP)
    set_state(service, run_id, "CANCELLING")
    wait(lambda: awaits_its_end(process))
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(process, signal.SIGCONT)
        wait(lambda: not processes_with("PREFECT__FLOW_RUN_ID", run_id))
        by_itself = noted(service, run_id)["state"]
    finally:
        os.kill(server, signal.SIGCONT)
    ended = service.end_of(run_id)
    wait(lambda: noted(service, run_id)["state"] == "cancelled")

    # Where the machine is so busy that it did not come to note its end, it is still noted as running.
    assert by_itself in {"crashed", "running"}
    assert ended["state_type"] == "CANCELLED"
    assert set(service.task_states(ended).values()) <= {"Completed", "Cancelled", "Cached"}


def is_engine(process: int) -> bool:
    """Whether a process is that of a run, and none that it has started."""
    return b"prefect.engine" in Path(f"/proc/{process}/cmdline").read_bytes()


def server_of(service: Service) -> int:
    """Return the process of the Prefect server that `tokmill up` has started."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text("ascii")
    (server,) = (
        int(child) for child in children.split() if b"uvicorn" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return server


def awaits_its_end(process: int) -> bool:
    """Whether SIGTERM was sent to a process that stands still."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    pending = next(line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) & 1 << (signal.SIGTERM - 1))


def test_a_task_run_that_the_server_hears_of_late_is_cancelled_too(service: Service) -> None:
    flow = service.call("/flows/", {"name": "late"})
    run = service.call("/flow_runs/", {"flow_id": flow["id"], "state": {"type": "RUNNING"}})
    early, late = uuid4(), uuid4()
    said = {"flow_run_id": run["id"], "task_key": "late", "state": {"type": "RUNNING"}}
    service.call("/task_runs/", {**said, "id": str(early), "dynamic_key": "early"})
    hears = Timer(0.5, service.call, ["/task_runs/", {**said, "id": str(late), "dynamic_key": "late"}])

    hears.start()
    with temporary_settings({PREFECT_API_URL: f"{service.url}/api"}):
        cancel_tasks(run["id"], [early, late])
    hears.join()

    states = [service.call(f"/task_runs/{task_run}")["state_type"] for task_run in (early, late)]
    assert states == ["CANCELLED", "CANCELLED"]
