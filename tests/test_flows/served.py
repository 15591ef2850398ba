"""What `tokmill up` serves, as a person or a script meets it from outside."""

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill

UP_SECONDS = 180
RUN_SECONDS = 180
POLL = threading.Event()  # never set: what is waited for is asked for again and again, at a decent pace


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
        return self.end_of(run["id"])

    def end_of(self, run_id: str) -> dict[str, Any]:
        """Wait until a run has ended."""
        until = time.monotonic() + RUN_SECONDS
        while time.monotonic() < until:
            found: dict[str, Any] = self.call(f"/flow_runs/{run_id}")
            if found["state_type"] in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}:
                return found
            POLL.wait(0.5)
        return pytest.fail(f"the run did not end within {RUN_SECONDS} s")

    def task_states(self, run: dict[str, Any]) -> dict[str, str]:
        """Title of each task run → the name of its state."""
        body = {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200}
        return {task["name"]: task["state_name"] for task in self.call("/task_runs/filter", body)}


def wait_for_line(process: "subprocess.Popen[str]", start: str) -> None:
    """Read what a process says until a line begins with `start`; one that takes too long is killed."""
    assert process.stderr is not None
    patience = threading.Timer(UP_SECONDS, process.terminate)
    patience.start()
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(start):
            patience.cancel()
            return
    pytest.fail(f"it ended without saying {start!r}: {''.join(said)}")
