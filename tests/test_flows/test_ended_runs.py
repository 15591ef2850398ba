"""The states, at Prefect and in the store, of runs that were ended from outside."""

import json
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.test_flows.served import LONG, Service, write_long
from tests.test_flows.stopped import wait_until
from tokmill.flows.prefect.ending import cancel_tasks

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def long_run(service: Service) -> str:
    """A profile with so many shards that its run can be interrupted."""
    write_long(service.tokmill.folder, 240)
    (service.tokmill.folder / "long.toml").write_text(LONG, encoding="utf-8")
    return "long.toml"


def started(service: Service, profile: str, name: str, vocab_size: int) -> str:
    """Start a run of the deployment, wait until the store has it as running, and return its id."""
    deployment = service.deployment_of(profile)
    body = {"name": name, "parameters": {"profile": profile, "train": {"vocab_size": vocab_size}}}
    run_id = str(service.call(f"/deployments/{deployment['id']}/create_flow_run", body)["id"])
    wait_until(lambda: noted(service, run_id).get("state") == "running", "it was running")
    return run_id


def noted(service: Service, run_id: str) -> dict[str, Any]:
    """Return the store's record of a run."""
    path = service.tokmill.store / "runs" / f"{run_id}.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def ended(service: Service, run_id: str, state: str) -> dict[str, Any]:
    """Wait until the store has a run as ended so; return its record."""
    wait_until(lambda: noted(service, run_id)["state"] == state, f"it was noted as {state}")
    return noted(service, run_id)


def set_state(service: Service, run_id: str, kind: str, name: str | None = None) -> None:
    """Set a run's state at Prefect's server."""
    state = {"type": kind, "name": name} if name else {"type": kind}
    service.call(f"/flow_runs/{run_id}/set_state", {"state": state, "force": True})


def test_a_cancelled_run_keeps_its_name_and_a_retry_does_not_erase_it(
    service: Service, long_run: str
) -> None:
    run_id = started(service, long_run, "For the board", 1001)
    set_state(service, run_id, "CANCELLING")
    at_server, first = service.end_of(run_id), ended(service, run_id, "cancelled")
    set_state(service, run_id, "SCHEDULED", "AwaitingRetry")
    wait_until(lambda: bool(noted(service, run_id)["earlier"]), "it was retried")
    set_state(service, run_id, "CANCELLING")
    service.end_of(run_id)
    again = ended(service, run_id, "cancelled")

    assert (at_server["name"], at_server["state_type"]) == ("For the board", "CANCELLED")
    assert (first["state"], first["earlier"]) == ("cancelled", [])
    assert [attempt["state"] for attempt in (*again["earlier"], again)] == ["cancelled", "cancelled"]
    assert again["earlier"][0]["started"] == first["started"]
    assert set(service.task_states(at_server).values()) <= {"Completed", "Cancelled", "Cached"}


def test_a_suspended_run_is_no_cancelled_one(service: Service, long_run: str) -> None:
    run_id = started(service, long_run, "to be suspended", 1002)
    set_state(service, run_id, "PAUSED", "Suspended")
    assert ended(service, run_id, "suspended")["message"]


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
