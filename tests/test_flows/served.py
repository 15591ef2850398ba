"""Access to a running `tokmill up` from outside, as for a person or a script."""

import json
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.test_flows.commands import Outcome, Tokmill
from tests.test_flows.corpora import words
from tokmill.flows.profile.served import ServedFolder

T = TypeVar("T")

UP_SECONDS = 180
RUN_SECONDS = 180
ANSWER_SECONDS = 90  # more than the 60 for which the server's database may be locked
POLL = threading.Event()  # never set: what is waited for is asked for again and again, at a decent pace
LONG = """
name = "long"
[sources.one]
files = ["long/*.txt"]
[ingest]
shard_bytes = 65536
[train]
vocab_size = 1000
[execution]
workers = 1  # it only has to go on
"""
"""A profile of a run that is to be interrupted."""


def write_long(folder: Path, number: int) -> None:
    """Write so many texts for it, each of words of its own."""
    (folder / "long").mkdir()
    generator = random.Random(1)
    for index in range(number):
        (folder / "long" / f"{index}.txt").write_text(words(generator, 10_000), encoding="utf-8")


class RefusedError(Exception):
    """The server refused a request; with status and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True)
class Service:
    """A running `tokmill up`: its process, its project and its API."""

    process: "subprocess.Popen[str]"
    tokmill: Tokmill
    url: str

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the Prefect API: a POST if there is a body."""
        return self.send(path, body, {} if body is None else self.csrf_headers())

    def send(self, path: str, body: Any, headers: Mapping[str, str], method: str | None = None) -> Any:
        """Send a request with further headers; raises RefusedError if it is refused."""
        request = urllib.request.Request(
            f"{self.url}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
            method=method,
        )
        for _ in range(20):
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503:  # the server's database is locked for a moment
                        raise RefusedError(error.code, error.read().decode("utf-8", "replace")) from None
            except TimeoutError:
                if body is not None:  # which may have been done
                    raise
                POLL.wait(0.5)
        return pytest.fail(f"{path}: the server stayed unavailable")

    def csrf_headers(self) -> dict[str, str]:
        """Return the headers of changes by the server's own clients.

        A new token takes the place of the client's last one: each thread is a client of its own.
        """
        client = f"tests-{threading.get_ident()}"
        token = self.send(f"/csrf-token?client={client}", None, {})["token"]
        return {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}

    @property
    def served(self) -> ServedFolder:
        """The served folder."""
        return ServedFolder.of(self.tokmill.folder, self.tokmill.store)

    @property
    def deployment(self) -> dict[str, Any]:
        """The deployment of the profile tiny.toml, as it is now."""
        return self.deployment_of("tiny.toml")

    def deployment_of(self, profile: str, flow: str = "build-corpus") -> dict[str, Any]:
        """Return the deployment of a profile, once it is there: `up` registers new profiles."""
        name = f"/deployments/name/{flow}/{self.served.name}.{profile.removesuffix('.toml')}"
        until = time.monotonic() + RUN_SECONDS
        while time.monotonic() < until:
            try:
                found: dict[str, Any] = self.call(name)
            except RefusedError:
                POLL.wait(0.5)
            else:
                return found
        return pytest.fail(f"there is no deployment of {profile}")

    def run_flow(self, flow: str, **parameters: Any) -> dict[str, Any]:
        """Start a run of a flow that has one deployment for the folder, and wait for its end."""
        deployment = self.call(f"/deployments/name/{flow}/{self.served.name}")
        run = self.call(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        return self.end_of(run["id"])

    def run(self, **parameters: Any) -> dict[str, Any]:
        """Start a run of the deployment and wait for its end."""
        run = self.call(f"/deployments/{self.deployment['id']}/create_flow_run", {"parameters": parameters})
        return self.end_of(run["id"])

    def started_by(self, run_id: str) -> str:
        """Return how a run was started, by its record in the store."""
        recorded = json.loads((self.tokmill.store / "runs" / f"{run_id}.json").read_bytes())
        assert recorded["url"].endswith(f"/flow-run/{run_id}")
        return str(recorded["started_by"]["how"])

    def doctor(self) -> Outcome:
        """Run `tokmill doctor`."""
        return self.tokmill("doctor", PREFECT_API_URL=f"{self.url}/api")

    def end_of(self, run_id: str) -> dict[str, Any]:
        """Wait until a run has ended."""
        over = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
        return self.until(
            lambda: dict(self.call(f"/flow_runs/{run_id}")), lambda run: run["state_type"] in over
        )

    def until(self, ask: Callable[[], T], good: Callable[[T], bool]) -> T:
        """Ask again and again until an answer is good."""
        until = time.monotonic() + RUN_SECONDS
        while time.monotonic() < until:
            found = ask()
            if good(found):
                return found
            POLL.wait(0.5)
        return pytest.fail(f"it did not come to be within {RUN_SECONDS} s: {found}")

    def task_states(self, run: dict[str, Any]) -> dict[str, str]:
        """Title of each task run → the name of its state."""
        body = {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200}
        return {task["name"]: task["state_name"] for task in self.call("/task_runs/filter", body)}

    def ended_task_states(self, run: dict[str, Any], last: str = "card") -> dict[str, str]:
        """The same, once the end of the run's last task is known, which the server writes a second later."""
        over = {"Completed", "Cached"}
        return self.until(lambda: self.task_states(run), lambda states: states.get(last) in over)


def wait_for_line(process: "subprocess.Popen[str]", start: str) -> None:
    """Read the output of a process until a line begins with `start`; kill it after a time limit."""
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
