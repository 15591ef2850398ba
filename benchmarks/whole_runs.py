"""Whole runs of one profile on much text, measured: what `runners.py`, `orchestration.py` and `end_to_end.py`
have in common.

The text is copies of given documents, each turned around at another place and with words of its own, so that
no two are equal. A run has an empty store. Its CPU time is that of all its processes: what the system counts
for the command and the children that it waited for, or what was seen of the processes that have its mark in
their environment (those of a cluster among them), whichever is more. The server's is what it used from the
start of the run until it had nothing more to do.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

PROFILE = """
name = "large"
[sources.large]
files = ["text/*.jsonl"]
{ingest}
[train]
vocab_size = 32_000
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[audit]
sample_megabytes = 8
[pack]
sequence_length = 2048
formats = ["memmap"]
"""
_MARK = "TOKMILL_BENCHMARK"
_FILE_BYTES = 64 << 20
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 2.0
_QUIET_CPU_SECONDS = 0.2


class Spent(NamedTuple):
    """Seconds of a run.

    Attributes:
        wall: from its start to its end.
        cpu: CPU time of its processes.
        server: CPU time of the server, until it had nothing more to do.
        watched: from the run's start until the server had nothing more to do.
    """

    wall: float
    cpu: float
    server: float
    watched: float

    def with_server(self, idle: float) -> float:
        """Return the CPU time of run and server, without what an idle server uses per second."""
        return self.cpu + max(self.server - idle * self.watched, 0.0)


def write_profile(folder: Path, shard_bytes: int | None = None) -> None:
    """Write the profile of the runs into a folder."""
    ingest = "" if shard_bytes is None else f"[ingest]\nshard_bytes = {shard_bytes}"
    (folder / "large.toml").write_text(PROFILE.format(ingest=ingest), encoding="utf-8")


def write_text(
    files: Sequence[Path],
    folder: Path,
    num_bytes: int,
    file_bytes: int = _FILE_BYTES,
    without: str | None = None,
) -> int:
    """Write about that many bytes of text as JSONL; return how many they are.

    Args:
        files: the documents.
        folder: which is made.
        num_bytes: of all files.
        file_bytes: after so many the next file begins.
        without: documents that hold this are left out.
    """
    texts = [text for file in files for text in _texts(file) if without is None or without not in text]
    folder.mkdir()
    written, generator, files_written, out = 0, random.Random(0), 0, None
    while written < num_bytes:
        for text in generator.sample(texts, len(texts)):
            if out is None or out.tell() > file_bytes:
                if out is not None:
                    out.close()
                out = (folder / f"{files_written:05}.jsonl").open("w", encoding="utf-8")
                files_written += 1
            turned = _turned(text, generator)
            written += len(turned.encode())
            out.write(json.dumps({"text": turned}, ensure_ascii=False) + "\n")
            if written >= num_bytes:
                break
    if out is not None:
        out.close()
    return written


def _texts(file: Path) -> list[str]:
    from tokmill.tasks.formats.text.readers import read_file_batches
    from tokmill.tasks.formats.text.sources import ReadOptions

    return [
        batch.data[start:end].tobytes().decode()
        for batch in read_file_batches(file, "jsonl", ReadOptions())
        for start, end in pairwise(batch.offsets.tolist())
    ]


def _turned(text: str, generator: random.Random) -> str:
    """Begin a text in its middle, and add a few words that it alone has."""
    at = text.find(" ", generator.randrange(len(text) + 1)) + 1
    own = " ".join(f"{generator.getrandbits(40):x}" for _ in range(1 + len(text) // 2000))
    return f"{own} {text[at:]} {text[:at]}"


def run(
    folder: Path,
    environment: Mapping[str, str],
    runner: str,
    workers: int,
    *options: str,
    profile: str = "large.toml",
    look: Callable[[Path], None] = lambda store: None,
) -> tuple[Spent, Mapping[str, str]]:
    """Run the profile in an empty store; return what it took, and the artifacts' digests.

    Args:
        folder: has the profile and its text.
        environment: of the server, with its mark.
        runner: `no-prefect`, or as in `execution.runner`.
        workers: tasks at a time.
        options: further ones of `tokmill run`.
        profile: the file, in the folder.
        look: gets the store before it is removed.
    """
    store = folder / "store"
    how = ["--no-prefect"] if runner == "no-prefect" else ["--set", f"execution.runner={runner}"]
    arguments = ["run", profile, *how, "--workers", str(workers), "--json", *options]
    before, began = _cpu_of(environment[_MARK]), time.monotonic()
    own = {**environment, "TOKMILL_STORE": str(store)}
    wall, cpu = timed([sys.executable, "-m", "tokmill", *arguments], folder, own)
    server = _quiet(environment[_MARK]) - before
    spent = Spent(wall, cpu, server, time.monotonic() - began)
    made = digests(store)
    look(store)
    shutil.rmtree(store)
    return spent, made


def timed(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Run a command in a folder; return its wall time and the CPU time of all its processes.

    Python may keep the bytecode of modules, as it does for those that are installed.
    """
    mark, began = str(uuid4()), time.monotonic()
    with (folder / "said").open("wb") as said:
        own = {**environment, _MARK: mark, "PYTHONDONTWRITEBYTECODE": ""}
        started = subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=said)
        status, counted, seen = _watched(started, mark)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'said').read_text()}")
    return time.monotonic() - began, max(counted, seen)


def _watched(started: "subprocess.Popen[bytes]", mark: str) -> tuple[int, float, float]:
    """Wait for a command; return its status, its CPU time as counted by the system, and that of its mark."""
    seen = Counter[str]()
    while True:
        pid, status, usage = os.wait4(started.pid, os.WNOHANG)
        if pid:
            started.returncode = os.waitstatus_to_exitcode(status)
            return started.returncode, usage.ru_utime + usage.ru_stime, sum(seen.values()) / _TICKS
        seen |= _processes(mark)
        time.sleep(0.2)


def _processes(mark: str) -> "Counter[str]":
    """Return the CPU time, in ticks, of each process that has a mark in its environment."""
    found = Counter[str]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                found[f"{folder.name} {fields[19]}"] = int(fields[11]) + int(fields[12])
        except OSError:  # it has ended, or is another user's
            continue
    return found


def _cpu_of(mark: str) -> float:
    return sum(_processes(mark).values()) / _TICKS


def _quiet(mark: str) -> float:
    """Wait until the processes with a mark have little more to do; return their CPU seconds."""
    last = -1.0
    while (now := _cpu_of(mark)) - last > _QUIET_CPU_SECONDS:
        last = now
        time.sleep(_LOOK_SECONDS)
    return now


def idle_share(environment: Mapping[str, str], seconds: float = 20.0) -> float:
    """Return the CPU seconds that a server without work uses per second."""
    before, began = _quiet(environment[_MARK]), time.monotonic()
    time.sleep(seconds)
    return (_cpu_of(environment[_MARK]) - before) / (time.monotonic() - began)


def digests(store: Path) -> dict[str, str]:
    """Return the content digest of each artifact of a store, by fingerprint."""
    records = [json.loads(path.read_bytes()) for path in store.glob("*/*/record.json")]
    return {record["fingerprint"]: record["content_digest"] for record in records}


@contextmanager
def server(home: Path) -> Iterator[dict[str, str]]:
    """A Prefect server like that of `tokmill up`; yields the environment for its clients."""
    from tokmill.flows.prefect.settings import SERVER, protection

    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "TOKMILL"))}
    port = 4000 + os.getpid() % 999
    api = f"http://127.0.0.1:{port}/api"
    own = {"PREFECT_HOME": str(home), "PREFECT_API_URL": api, _MARK: str(uuid4()), "DO_NOT_TRACK": "1"}
    environment = {**kept, **own, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    of_server = {**environment, **SERVER, **protection([f"127.0.0.1:{port}"])}
    served = ["--factory", "tokmill.flows.prefect.app:create_app", "--lifespan", "on", "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", *served, "--host", "127.0.0.1", "--log-level", "error"]
    with (
        (home.parent / "server.log").open("wb") as log,
        subprocess.Popen(command, env=of_server, stdout=log, stderr=log) as started,
    ):
        try:
            while not _answers(f"{api}/health"):
                time.sleep(0.5)
            yield environment
        finally:
            started.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False
