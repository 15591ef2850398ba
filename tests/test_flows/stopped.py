"""Runs of a served project that are long enough to be stopped in the middle of a chosen stage.

Their text is compressed with bzip2, which is so slow that each stage that reads it takes seconds, though
there is little of it.
"""

import bz2
import json
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeAlias

from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, clean_environment, free_port, processes_with
from tests.test_flows.served import POLL, Service, wait_for_line

WAIT_SECONDS = 600  # how long anything may take before the test gives up; no measure of speed
FILES, FILE_BYTES = 8, 1_000_000
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
files = ["{source}/*"]
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
    """Write the text: the standard library, again and again from another line on, with a word renamed."""
    generator = random.Random(1)
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*/*.py"))
    texts = [each.read_text("utf-8", "replace") for each in modules if each.parent.name != "site-packages"]
    (folder / "library").mkdir(parents=True)
    for number in range(FILES):
        size = 0
        with bz2.open(folder / "library" / f"{number}.jsonl.bz2", "wb") as written:
            while size < FILE_BYTES:
                lines = generator.choice(texts).splitlines(keepends=True)
                first = generator.randrange(len(lines) + 1)
                text = "".join(lines[first:] + lines[:first])
                text = text.replace("self", f"self{generator.randrange(1000)}")
                size += written.write(json.dumps({"text": text}).encode() + b"\n")


def write_profile(folder: Path, name: str, source: str = "library") -> None:
    """Write a profile of a folder of texts, and beside it what it extends, its gate."""
    set_gate(folder, name, LENIENT)
    (folder / f"{name}.toml").write_text(PROFILE.format(name=name, source=source), encoding="utf-8")


def set_gate(folder: Path, name: str, gate: str) -> None:
    """Change the gate of a profile."""
    (folder / f"{name}-gate.toml").write_text(gate, encoding="utf-8")


Artifact: TypeAlias = tuple[str, str]
"""Kind and fingerprint."""

_HELD = re.compile(r"FLOCK .*:(\d+) 0 EOF$", re.MULTILINE)
_RECORD = "record.json"


@dataclass(frozen=True)
class SeenStore(ABC):
    """A store; `url` is what a run is given."""

    url: str

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all files."""

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def replace(self, name: str, content: bytes | None) -> None:
        """Write a file, or remove it."""

    @abstractmethod
    def work_folders(self) -> Iterator[Path]:
        """The folders in which processes of this machine have what they work on."""

    def records(self) -> dict[Artifact, bytes]:
        """Return the record of every artifact: it has the times at which that was made."""
        contents = [self.read(name) for name in self.names() if name.endswith(f"/{_RECORD}")]
        found = [(json.loads(content), content) for content in contents]
        return {(record["kind"], record["fingerprint"]): content for record, content in found}

    def num_of(self, kind: str) -> int:
        """Return how many artifacts of a kind there are."""
        return sum(f"/{kind}/" in f"/{name}" and name.endswith(f"/{_RECORD}") for name in self.names())

    def digests(self) -> dict[Artifact, str]:
        """Return the digest of every artifact's content."""
        return {key: json.loads(record)["content_digest"] for key, record in self.records().items()}

    def noted(self, run_id: str) -> dict[str, Any]:
        """Return what is noted of a run; nothing if it is not known."""
        found = [name for name in self.names() if name.endswith(f"runs/{run_id}.json")]
        return dict(json.loads(self.read(found[0]))) if found else {}

    def files_of(self, artifact: Artifact) -> list[str]:
        """Return the names of an artifact's files."""
        kind, fingerprint = artifact
        return [name for name in self.names() if f"/{kind}/{fingerprint[:16]}/" in f"/{name}"]

    def remove(self, artifact: Artifact) -> None:
        """Delete an artifact."""
        for name in self.files_of(artifact):
            self.replace(name, None)

    def damage(self, artifact: Artifact) -> None:
        """Cut an artifact's largest file; in a bucket, whose files are compared once pulled, its record."""
        names = [name for name in self.files_of(artifact) if name.endswith(_RECORD) == ("://" in self.url)]
        name = max(names, key=lambda each: len(self.read(each)))
        self.replace(name, self.read(name)[: len(self.read(name)) // 2])

    def at_work(self, kind: str = "") -> bool:
        """Whether a process of this machine is making an artifact, or one of a kind.

        The locks are those of the system's table, so that whoever looks never holds one.
        """
        pattern = f".locks/{kind}-*.lock" if kind else ".tmp/*.lock"
        held = {int(inode) for inode in _HELD.findall(Path("/proc/locks").read_text("ascii"))}
        for file in (file for folder in self.work_folders() for file in folder.glob(pattern)):
            with suppress(FileNotFoundError):  # just released
                if file.stat().st_ino in held:
                    return True
        return False


@dataclass(frozen=True)
class FolderSeen(SeenStore):
    """A store in a folder; work in progress has no names."""

    def names(self) -> list[str]:
        root = Path(self.url)
        return [path.relative_to(root).as_posix() for path in root.glob("[!.]*/**/*") if path.is_file()]

    def read(self, name: str) -> bytes:
        return Path(self.url, name).read_bytes()

    def replace(self, name: str, content: bytes | None) -> None:
        path = Path(self.url, name)
        path.unlink() if content is None else path.write_bytes(content)

    def work_folders(self) -> Iterator[Path]:
        yield Path(self.url)


@dataclass(frozen=True)
class BucketSeen(SeenStore):
    """A store in a bucket, which has nothing else; `caches` has the caches of all machines."""

    bucket: Bucket
    caches: Path

    def names(self) -> list[str]:
        return self.bucket.keys()

    def read(self, name: str) -> bytes:
        return self.bucket.get(name)

    def replace(self, name: str, content: bytes | None) -> None:
        self.bucket.delete(name) if content is None else self.bucket.put(name, content)

    def work_folders(self) -> Iterator[Path]:
        for mark in self.caches.glob("*/tokmill/stores/*/.url"):
            if self.url in mark.read_text("utf-8"):
                yield mark.parent


@contextmanager
def up(tokmill: Tokmill) -> Iterator[Service]:
    """Have `tokmill up` serve a folder in this block."""
    port = free_port()
    process = tokmill.start("up", "--port", str(port))
    try:
        wait_for_line(process, "up: ")
        yield Service(process, tokmill, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=120)


@contextmanager
def served(folder: Path, home: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """Serve a folder with a copy of a Prefect home."""
    own = shutil.copytree(home, folder.with_name(f"{folder.name}-home"))
    quick = {"PYTHONUNBUFFERED": "1", "PREFECT_WORKER_QUERY_SECONDS": "1"}
    given = clean_environment(PREFECT_HOME=str(own), **quick, **environment)
    with up(Tokmill(folder, given)) as service:
        yield service


@contextmanager
def worker(machine: Tokmill, service: Service, queue: str, pool: str = "") -> Iterator[None]:
    """Have a worker of a machine take the runs of one queue of a pool, by default the service's."""
    api = {"PREFECT_API_URL": f"{service.url}/api", "TOKMILL_STORE": str(machine.store)}
    pool = pool or service.served.work_pool
    command = ["server", "work", "--pool", pool, "--queue", queue, "--allow-profiles"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tokmill", *command],
        cwd=machine.folder,
        env={**machine.environment, **api},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(happened: Callable[[], object], what: str, pause: float = 0.2) -> None:
    """Wait until something has happened, looking every `pause` seconds.

    The server is not asked more often than it must be: each answer costs it 10 ms of a processor.
    """
    began = monotonic()
    while not happened():
        assert monotonic() - began < WAIT_SECONDS, f"it took too long until {what}"
        POLL.wait(pause)


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
        asked = {"name": "for the board", "parameters": {"store": store.url, **parameters}}
        if queue is not None:
            asked["work_queue_name"] = queue
        deployment = service.deployment_of(profile)["id"]
        return cls(service, store, service.call(f"/deployments/{deployment}/create_flow_run", asked)["id"])

    @property
    def state(self) -> dict[str, Any]:
        """Its state at the server."""
        found: dict[str, Any] = self.service.call(f"/flow_runs/{self.id}")["state"]
        return found

    @property
    def noted(self) -> dict[str, Any]:
        """What the store has noted of it."""
        return self.store.noted(self.id)

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

    def cancelled(self) -> None:
        """Do what the page's button Cancel does, and check what becomes of it."""
        self._set({"type": "CANCELLING", "name": "Cancelling"})
        self.ended("CANCELLED")
        self._is_gone("cancelled")
        sleep(2)  # the worker notices a moment later, and would call a run that went on by then crashed

    def paused(self) -> None:
        """Do what the page's button Pause does, and check what becomes of it."""
        until = (datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS)).isoformat()
        details = {"pause_timeout": until, "pause_reschedule": True}
        self._set({"type": "PAUSED", "name": "Suspended", "state_details": details})
        self._is_gone("suspended")
        assert self.state["name"] == "Suspended"

    def ended(self, kind: str) -> None:
        """Wait until it has ended so."""
        wait_until(lambda: self.state["type"] in FINAL, "the run ended", pause=0.5)
        assert self.state["type"] == kind, self.state

    def completed(self) -> dict[str, Any]:
        """Wait until it has completed; return what the store has noted of it."""
        self.ended("COMPLETED")
        return self.noted

    def go_on(self) -> None:
        """Do what the page's buttons Retry and Resume do."""
        if self.state["type"] == "PAUSED":
            assert self.service.call(f"/flow_runs/{self.id}/resume", {})["status"] == "ACCEPT"
        else:
            self._set({"type": "SCHEDULED", "name": "AwaitingRetry"})

    def _is_gone(self, noted: str) -> None:
        """Wait until none of its processes is left, and the store has noted its end."""

        def gone() -> bool:
            return not processes_with("PREFECT__FLOW_RUN_ID", self.id) and not self.store.at_work()

        wait_until(gone, "nothing of it was left")
        wait_until(lambda: self.noted["state"] == noted, f"it was noted as {noted}")

    def _set(self, state: dict[str, Any]) -> None:
        self.service.call(f"/flow_runs/{self.id}/set_state", {"state": state, "force": True})
