"""Runs of a served project that are long enough to be stopped in the middle of a chosen stage.

Their text is compressed with bzip2, which is so slow that each stage that reads it takes seconds, though
there is little of it. With TOKMILL_EVERYTHING there is much of it, and nothing is compressed.
"""

import bz2
import json
import os
import random
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.processes import processes_with
from tests.test_flows.served import POLL, Service, wait_for_line
from tokmill.tasks.store import Store
from tokmill.tasks.store.storage import STORAGE

EVERYTHING = "TOKMILL_EVERYTHING" in os.environ
WAIT_SECONDS = 300  # how long anything may take before the test gives up; no measure of speed
FILES, FILE_BYTES = (2, 120_000_000) if EVERYTHING else (24, 1_000_000)
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
PROFILE = """
name = "long"
[sources.library]
files = ["library/*"]
format = "jsonl"
[ingest]
shard_bytes = 1000000
[train]
vocab_size = 4000
family = "unigram"
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 256
sequences_per_shard = 256
formats = ["memmap", "parquet"]
"""


def write_long_project(folder: Path) -> None:
    """Write the profile `long.toml`, and the text: the standard library, again and again with variations."""
    generator, texts = random.Random(1), list(_modules())
    (folder / "library").mkdir(parents=True)
    (folder / "long.toml").write_text(PROFILE, encoding="utf-8")
    for number in range(FILES):
        file, size = folder / "library" / f"{number}.jsonl", 0
        with file.open("wb") if EVERYTHING else bz2.open(f"{file}.bz2", "wb") as written:
            while size < FILE_BYTES:
                text = _varied(generator.choice(texts), generator)
                size += written.write(json.dumps({"text": text}).encode() + b"\n")


def _modules() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py")):
        if path.parent.name != "site-packages":
            yield path.read_text("utf-8", "replace")


def _varied(text: str, generator: random.Random) -> str:
    """Begin elsewhere in a text, and rename a frequent word."""
    lines = text.splitlines(keepends=True)
    first = generator.randrange(len(lines) + 1)
    return "".join(lines[first:] + lines[:first]).replace("self", f"self{generator.randrange(1000)}")


@contextmanager
def served(folder: Path, home: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """Serve a folder with `tokmill up`, with a copy of a Prefect home."""
    own = shutil.copytree(home, folder.with_name(f"{folder.name}-home"))
    given = clean_environment(PREFECT_HOME=str(own), PYTHONUNBUFFERED="1", **environment)
    tokmill, port = Tokmill(folder, given), free_port()
    process = tokmill.start("up", "--port", str(port))
    try:
        wait_for_line(process, "up: ")
        yield Service(process, tokmill, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=120)


def wait_until(happened: Callable[[], object], what: str) -> float:
    """Wait until something has happened; return the seconds that it took."""
    began = monotonic()
    while not happened():
        assert monotonic() - began < WAIT_SECONDS, f"it took too long until {what}"
        POLL.wait(0.1)
    return monotonic() - began


@dataclass(frozen=True)
class Running:
    """A run of the deployment of a served project."""

    service: Service
    id: str

    @classmethod
    def start(cls, service: Service, **parameters: Any) -> "Running":
        """Start a run."""
        deployment = service.deployment_of("long.toml")["id"]
        made = service.call(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
        return cls(service, made["id"])

    @property
    def state(self) -> dict[str, Any]:
        """Its state at the server."""
        found: dict[str, Any] = self.service.call(f"/flow_runs/{self.id}")["state"]
        return found

    def noted(self, store: Path) -> dict[str, Any]:
        """Return what a store has noted of it."""
        path = store / "runs" / f"{self.id}.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    @property
    def processes(self) -> set[int]:
        """Its processes, and those that these have started."""
        return processes_with("PREFECT__FLOW_RUN_ID", self.id)

    def wait_for(self, stage: str) -> None:
        """Wait until a task of a stage has begun in this attempt; fail if the run ends before that."""
        of_this_run = {
            "flow_runs": {"id": {"any_": [self.id]}},
            "limit": 200,
            "sort": "EXPECTED_START_TIME_DESC",
        }

        def begun() -> bool:
            state = self.state
            assert state["type"] not in FINAL, f"{stage}: the run has ended: {state}"
            states = [
                task["state"]
                for task in self.service.call("/task_runs/filter", of_this_run)
                if task["name"].partition("[")[0] == stage and task["state"]
            ]
            return state["type"] == "RUNNING" and any(
                one["name"] in {"Running", "Completed"} and one["timestamp"] > state["timestamp"]
                for one in states
            )

        wait_until(begun, f"{stage} began")

    def cancelled(self, store: Path) -> float:
        """Do what the page's button Cancel does, and check what becomes of it; return the seconds it took."""
        self._set({"type": "CANCELLING", "name": "Cancelling"})
        seconds = wait_until(lambda: self.state["type"] in FINAL, "it was cancelled")
        seconds += wait_until(lambda: not self.processes and not at_work(store), "nothing of it was left")
        state, noted = self.state, self.noted(store)
        assert (state["type"], noted["state"]) == ("CANCELLED", "cancelled"), f"{state} {noted}"
        return seconds

    def paused(self, store: Path) -> float:
        """Do what the page's button Pause does, and check what becomes of it; return the seconds it took."""
        until = (datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS)).isoformat()
        details = {"pause_timeout": until, "pause_reschedule": True}
        self._set({"type": "PAUSED", "name": "Suspended", "state_details": details})
        seconds = wait_until(lambda: not self.processes and not at_work(store), "nothing of it was at work")
        state, noted = self.state, self.noted(store)
        assert (state["name"], noted["state"]) == ("Suspended", "suspended"), f"{state} {noted}"
        return seconds

    def go_on(self) -> None:
        """Do what the page's buttons Retry and Resume do."""
        if self.state["type"] == "PAUSED":
            assert self.service.call(f"/flow_runs/{self.id}/resume", {})["status"] == "ACCEPT"
        else:
            self._set({"type": "SCHEDULED", "name": "AwaitingRetry"})

    def end(self) -> dict[str, Any]:
        """Wait until it has ended; return its state."""
        wait_until(lambda: self.state["type"] in FINAL, "the run ended")
        return self.state

    def _set(self, state: dict[str, Any]) -> None:
        self.service.call(f"/flow_runs/{self.id}/set_state", {"state": state, "force": True})


def at_work(store: Path) -> bool:
    """Whether any task, in whichever process, is making an artifact."""
    temporary = Store.open(store).layout.temporary
    for entry in STORAGE.entries(temporary):
        if entry.name.endswith(".lock"):
            lock = STORAGE.lock(temporary / entry.name)
            if not lock.try_acquire():
                return True
            lock.release()
    return False
