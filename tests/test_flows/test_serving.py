"""`tokmill up` and the deployment: runs that are started from outside, again with another parameter."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.corpora import write_project

pytestmark = pytest.mark.server

UP_SECONDS = 180
RUN_SECONDS = 180
POLL = threading.Event()  # never set: what is waited for is asked for again and again, at a decent pace

SHOW_DEPLOYMENT = """
import json
from flows.deployment import deployment
made = deployment()
schedule = made.schedules[0]
print(json.dumps({
    "name": made.name, "description": made.description, "entrypoint": made.entrypoint, "tags": made.tags,
    "parameters": made.parameters, "cron": schedule.schedule.cron, "timezone": schedule.schedule.timezone,
    "active": schedule.active, "work_pool": made.work_pool_name,
}))
"""


@dataclass(frozen=True)
class Service:
    """What `tokmill up` serves: its process, its project and its API."""

    process: "subprocess.Popen[str]"
    tokmill: Tokmill
    url: str

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the Prefect API; a body makes it a POST."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/api{path}", data=data, headers={"Content-Type": "application/json"}
        )
        for _ in range(20):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # the server's database is locked for a moment
                    raise
                POLL.wait(0.5)
        return pytest.fail(f"{path}: the server stayed unavailable")

    def run(self, **parameters: Any) -> dict[str, Any]:
        """Start a run of the deployment and wait for its end."""
        deployment = self.call("/deployments/name/build-corpus/build-corpus")["id"]
        run = self.call(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
        until = time.monotonic() + RUN_SECONDS
        while time.monotonic() < until:
            found: dict[str, Any] = self.call(f"/flow_runs/{run['id']}")
            if found["state_type"] in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}:
                return found
            POLL.wait(0.5)
        return pytest.fail(f"the run did not end within {RUN_SECONDS} s")

    def task_states(self, run: dict[str, Any]) -> dict[str, str]:
        """Title of each task run → the name of its state."""
        body = {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200}
        return {task["name"]: task["state_name"] for task in self.call("/task_runs/filter", body)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A project that `tokmill up` serves, on a port and with a Prefect home of its own."""
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    write_project(folder, num_documents=120)
    home = tmp_path_factory.mktemp("home")
    tokmill = Tokmill(folder, clean_environment(PREFECT_HOME=str(home), PYTHONUNBUFFERED="1"))
    process = tokmill.start("up", "--port", str(port))
    try:
        wait_for_line(process, "up: ")
        yield Service(process, tokmill, f"http://127.0.0.1:{port}")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_line(process: "subprocess.Popen[str]", start: str) -> None:
    """Read what a process says until a line begins with `start`; one that takes too long is killed."""
    assert process.stderr is not None
    patience = threading.Timer(UP_SECONDS, process.kill)
    patience.start()
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(start):
            patience.cancel()
            return
    pytest.fail(f"it ended without saying {start!r}: {''.join(said)}")


def test_prefect_yaml_says_what_up_registers(checkout: Path) -> None:
    written = yaml.safe_load((checkout / "prefect.yaml").read_text(encoding="utf-8"))["deployments"][0]
    done = subprocess.run(
        [sys.executable, "-c", SHOW_DEPLOYMENT],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    made = json.loads(done.stdout)

    (schedule,) = written.pop("schedules")
    assert made == {**written, "work_pool": written["work_pool"]["name"], **schedule}


def test_a_rerun_with_another_sequence_length_shows_what_is_upstream_as_cached(service: Service) -> None:
    first = service.run(profile="tiny.toml")
    again = service.run(profile="tiny.toml", overrides={"pack": {"sequence_length": 64}})

    assert (first["state_name"], again["state_name"]) == ("Completed", "Completed")
    states = service.task_states(again)
    ran = {name for name, state in states.items() if state != "Cached"}
    assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
    assert len(states) - len(ran) > 10


def test_a_run_is_summed_up_in_an_artifact_with_its_lineage(service: Service) -> None:
    run = service.run(profile="tiny.toml")

    body = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}}
    (artifact,) = service.call("/artifacts/filter", body)
    assert artifact["type"] == "markdown"
    assert "```mermaid\nflowchart" in artifact["data"]
    assert "tokenizer/tiny@v1" in artifact["data"]


def test_a_run_with_a_wrong_profile_fails_and_says_why(service: Service) -> None:
    run = service.run(profile="tiny.toml", overrides={"more": ["pack.sequence_lenght=64"]})

    assert run["state_name"] == "Failed"
    assert "sequence_length" in run["state"]["message"]


def test_a_port_in_use_is_told(service: Service, tmp_path: Path) -> None:
    port = service.url.rpartition(":")[2]

    refused = service.tokmill.at(tmp_path)("up", "--port", port)

    assert refused.code == 1
    assert f"127.0.0.1:{port}" in refused.err
    assert "--port" in refused.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_worker_and_the_server(tmp_path: Path, number: signal.Signals) -> None:
    home, port = tmp_path / "home", free_port()
    tokmill = Tokmill(tmp_path, clean_environment(PREFECT_HOME=str(home), PYTHONUNBUFFERED="1"))
    process = tokmill.start("up", "--port", str(port))
    wait_for_line(process, "up: ")

    process.send_signal(number)
    process.communicate(timeout=UP_SECONDS)

    assert process.returncode == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert os.getpgid(0) != process.pid
