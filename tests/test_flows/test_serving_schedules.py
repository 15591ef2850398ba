"""Schedules of a served folder: they start runs, outlast a restart, and runs that overlap do as chosen."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.served import Service, write_long
from tests.test_flows.stopped import up, wait_until

pytestmark = [pytest.mark.server, pytest.mark.slow]

OFTEN = """
extends = "tiny.toml"
[schedule]
interval = "10s"
active = true
"""
NIGHTLY = """
extends = "tiny.toml"
[schedule]
cron = "0 3 * * *"
timezone = "Europe/Berlin"
if_running = "{if_running}"
"""
LONG = """
[sources.long]
files = ["long/*.txt"]
[ingest]
shard_bytes = 65536
[train]
vocab_size = 2000
[schedule]
if_running = "{if_running}"
[execution]
workers = 1  # it only has to go on
"""


def write(folder: Path) -> None:
    """Write a project with a profile that runs often, one that runs nightly, and one that takes long."""
    write_project(folder, num_documents=40)
    (folder / "often.toml").write_text(OFTEN, "utf-8")
    (folder / "nightly.toml").write_text(NIGHTLY.format(if_running="wait"), "utf-8")
    write_long(folder, 240)
    (folder / "long.toml").write_text(LONG.format(if_running="cancel"), "utf-8")


def until(condition: Callable[[], Any]) -> None:
    wait_until(condition, "what was waited for", pause=0.5)


def schedules(service: Service, profile: str) -> dict[str, Any]:
    """Return slug → schedule of a profile's deployment."""
    return {each["slug"]: each for each in service.deployment_of(profile)["schedules"]}


def runs_of(service: Service, profile: str) -> list[dict[str, Any]]:
    """Return the runs of a profile's deployment that a schedule has started."""
    wanted = {"deployment_id": {"any_": [service.deployment_of(profile)["id"]]}}
    body = {"flow_runs": {**wanted, "start_time": {"is_null_": False}}}
    return [run for run in service.call("/flow_runs/filter", body) if run["auto_scheduled"]]


def start(service: Service, profile: str) -> str:
    """Start a run of a profile; return its id."""
    deployment = service.deployment_of(profile)
    return str(service.call(f"/deployments/{deployment['id']}/create_flow_run", {})["id"])


def state(service: Service, run_id: str) -> str:
    return str(service.call(f"/flow_runs/{run_id}")["state_name"])


def cancel(service: Service, run_id: str) -> None:
    body = {"state": {"type": "CANCELLING"}, "force": True}
    service.call(f"/flow_runs/{run_id}/set_state", body)
    service.end_of(run_id)


def set_schedule(service: Service, profile: str, **changed: Any) -> None:
    """Do what a person does in the page with the profile's own schedule."""
    deployment = service.deployment_of(profile)
    (own,) = [each for each in deployment["schedules"] if each["slug"] == "profile"]
    path = f"/deployments/{deployment['id']}/schedules/{own['id']}"
    service.send(path, changed, service.csrf_headers(), "PATCH")


def test_schedules_run_and_outlast_a_restart_and_overlapping_runs_do_what_was_chosen(
    migrated_home: Path, tmp_path: Path
) -> None:
    write(tmp_path)
    home = shutil.copytree(migrated_home, tmp_path / ".home")
    tokmill = Tokmill(tmp_path, clean_environment(PREFECT_HOME=str(home), PYTHONUNBUFFERED="1"))

    with up(tokmill) as service:
        until(lambda: runs_of(service, "often.toml"))
        first = service.end_of(runs_of(service, "often.toml")[0]["id"])
        assert (first["state_name"], first["created_by"]["type"]) == ("Completed", "SCHEDULE")
        assert service.started_by(first["id"]) == "schedule"
        assert service.doctor().code == 0
        assert not schedules(service, "nightly.toml")["profile"]["active"]
        set_schedule(service, "nightly.toml", schedule={"cron": "15 4 * * *", "timezone": "UTC"}, active=True)
        weekly = {"schedule": {"cron": "30 6 * * 1", "timezone": "UTC"}, "active": True, "slug": "weekly"}
        url = f"/deployments/{service.deployment_of('nightly.toml')['id']}/schedules"
        service.send(url, [weekly], service.csrf_headers())
        set_schedule(service, "often.toml", active=False)
        a_second_run_cancels_itself(service)

    with up(tokmill) as service:
        kept = schedules(service, "nightly.toml")
        assert kept.keys() == {"profile", "weekly"}
        assert (kept["profile"]["schedule"]["cron"], kept["profile"]["active"]) == ("15 4 * * *", True)
        assert not schedules(service, "often.toml")["profile"]["active"]
        (tmp_path / "long.toml").write_text(LONG.format(if_running="wait"), "utf-8")
        until(lambda: strategy(service) == "ENQUEUE")
        a_second_run_waits(service)


def strategy(service: Service) -> str:
    return str(service.deployment_of("long.toml")["concurrency_options"]["collision_strategy"])


def a_second_run_cancels_itself(service: Service) -> None:
    going = start(service, "long.toml")
    until(lambda: state(service, going) == "Running")

    second = service.end_of(start(service, "long.toml"))

    assert (second["state_type"], state(service, going)) == ("CANCELLED", "Running")
    cancel(service, going)


def a_second_run_waits(service: Service) -> None:
    going = start(service, "long.toml")
    until(lambda: state(service, going) == "Running")
    second = start(service, "long.toml")
    until(lambda: state(service, second) == "AwaitingConcurrencySlot")
    assert state(service, going) == "Running"

    cancel(service, going)

    until(lambda: state(service, second) == "Running")
    cancel(service, second)
