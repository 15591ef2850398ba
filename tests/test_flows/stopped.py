"""Runs of a served project that are long enough to be stopped in the middle of a chosen stage.

Their text is compressed with bzip2, which is so slow that each stage that reads it takes seconds, though
there is little of it.
"""

import bz2
import json
import random
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from tests.effort import EVERYTHING
from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.processes import processes_with
from tests.test_flows.seen_stores import SeenStore
from tests.test_flows.served import POLL, Service, wait_for_line

WAIT_SECONDS = 600  # how long anything may take before the test gives up; no measure of speed
# on an idle machine eight files are encoded in a second, too soon to be interrupted in that twice
FILES, FILE_BYTES = 24 if EVERYTHING else 8, 1_000_000
_LOOKS_PER_QUESTION = 40
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
KIND_OF = {
    "ingest": "corpus",
    "count": "counts_shard",
    "train": "tokenizer",
    "encode": "encoded_shard",
    "pack": "packed_shard",
}
"""Stage → the kind of the artifacts that take it long."""

PROFILE = """
extends = "{name}-gate.toml"
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
sequences_per_shard = 1024
formats = ["memmap", "parquet"]
"""
TOO_STRICT = '[audit]\nmin_bytes_per_token = 1000.0\non_failure = "fail"\n'
LENIENT = "[audit]\n"


def write_text(folder: Path) -> None:
    """Write the text: the standard library, again and again with variations."""
    generator, texts = random.Random(1), list(_modules())
    (folder / "library").mkdir(parents=True)
    for number in range(FILES):
        size = 0
        with bz2.open(folder / "library" / f"{number}.jsonl.bz2", "wb") as written:
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


def write_profile(folder: Path, name: str) -> str:
    """Write a profile, and beside it what it extends, its gate; return its file's name."""
    set_gate(folder, name, LENIENT)
    (folder / f"{name}.toml").write_text(PROFILE.format(name=name), encoding="utf-8")
    return f"{name}.toml"


def set_gate(folder: Path, name: str, gate: str) -> None:
    """Change the gate of a profile."""
    (folder / f"{name}-gate.toml").write_text(gate, encoding="utf-8")


@contextmanager
def served(folder: Path, home: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """Serve a folder with `tokmill up`, with a copy of a Prefect home."""
    own = shutil.copytree(home, folder.with_name(f"{folder.name}-home"))
    quick = {"PYTHONUNBUFFERED": "1", "PREFECT_WORKER_QUERY_SECONDS": "1"}
    given = clean_environment(PREFECT_HOME=str(own), **quick, **environment)
    tokmill, port = Tokmill(folder, given), free_port()
    process = tokmill.start("up", "--port", str(port))
    try:
        wait_for_line(process, "up: ")
        yield Service(process, tokmill, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=120)


def wait_until(happened: Callable[[], object], what: str, pause: float = 0.2) -> float:
    """Wait until something has happened, looking every `pause` seconds; return the seconds that it took.

    The server is not asked more often than it must be: each answer costs it 10 ms of a processor.
    """
    began = monotonic()
    while not happened():
        assert monotonic() - began < WAIT_SECONDS, f"it took too long until {what}"
        POLL.wait(pause)
    return monotonic() - began


@dataclass(frozen=True)
class Running:
    """A run of a deployment, with its artifacts in `store`."""

    service: Service
    store: SeenStore
    id: str

    @classmethod
    def start(
        cls, service: Service, profile: str, store: SeenStore, queue: str | None = None, **parameters: Any
    ) -> "Running":
        """Start a run of a profile, which the workers of a queue may take."""
        deployment = service.deployment_of(profile)["id"]
        asked = {"parameters": {"store": store.url, **parameters}}
        if queue is not None:
            asked["work_queue_name"] = queue
        made = service.call(f"/deployments/{deployment}/create_flow_run", asked)
        return cls(service, store, made["id"])

    @property
    def state(self) -> dict[str, Any]:
        """Its state at the server."""
        found: dict[str, Any] = self.service.call(f"/flow_runs/{self.id}")["state"]
        return found

    @property
    def noted(self) -> dict[str, Any]:
        """What the store has noted of it."""
        return self.store.noted(self.id)

    @property
    def processes(self) -> set[int]:
        """Its processes, and those that these have started."""
        return processes_with("PREFECT__FLOW_RUN_ID", self.id)

    def wait_for(self, stage: str) -> None:
        """Wait until an artifact of a stage is being made; fail if the run ends before that.

        The server learns of a task's start some time after it, so it is not asked.
        """
        kind, looks = KIND_OF[stage], count()
        before = self.store.num_of(kind)

        def begun() -> bool:
            if next(looks) % _LOOKS_PER_QUESTION == 0:
                assert self.state["type"] not in FINAL, f"{stage} did not begin: {self.state}"
                return self.store.num_of(kind) > before  # a short stage that was never seen at work
            return self.store.at_work(kind)

        wait_until(begun, f"{stage} began", pause=0.05)

    def cancelled(self) -> float:
        """Do what the page's button Cancel does, and check what becomes of it; return the seconds it took."""
        self._set({"type": "CANCELLING", "name": "Cancelling"})
        seconds = wait_until(lambda: self.state["type"] in FINAL, "it was cancelled")
        seconds += wait_until(self._is_gone, "nothing of it was left")
        state, noted = self.state, self.noted
        assert (state["type"], noted["state"]) == ("CANCELLED", "cancelled"), f"{state} {noted}"
        return seconds

    def paused(self) -> float:
        """Do what the page's button Pause does, and check what becomes of it; return the seconds it took."""
        until = (datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS)).isoformat()
        details = {"pause_timeout": until, "pause_reschedule": True}
        self._set({"type": "PAUSED", "name": "Suspended", "state_details": details})
        seconds = wait_until(self._is_gone, "nothing of it was at work")
        state, noted = self.state, self.noted
        assert (state["name"], noted["state"]) == ("Suspended", "suspended"), f"{state} {noted}"
        return seconds

    def failed(self) -> float:
        """Wait until it has failed; return the seconds that it took."""
        seconds = wait_until(lambda: self.state["type"] in FINAL, "it failed", pause=1.0)
        state = self.state
        assert (state["type"], self.noted["state"]) == ("FAILED", "failed"), state
        return seconds

    def go_on(self) -> None:
        """Do what the page's buttons Retry and Resume do."""
        if self.state["type"] == "PAUSED":
            assert self.service.call(f"/flow_runs/{self.id}/resume", {})["status"] == "ACCEPT"
        else:
            self._set({"type": "SCHEDULED", "name": "AwaitingRetry"})

    def completed(self) -> dict[str, Any]:
        """Wait until it has completed; return what the store has noted of it."""
        wait_until(lambda: self.state["type"] in FINAL, "the run ended", pause=1.0)
        state = self.state
        assert state["type"] == "COMPLETED", state
        return self.noted

    def _is_gone(self) -> bool:
        return not self.processes and not self.store.at_work()

    def _set(self, state: dict[str, Any]) -> None:
        self.service.call(f"/flow_runs/{self.id}/set_state", {"state": state, "force": True})
