"""What each runner costs: one profile with every runner, one worker and two, and without Prefect.

    python benchmarks/runners.py ../shared/data/corpora/*.jsonl.zst --gigabytes 2 --work /var/tmp/runners

The text is copies of the given documents, each turned around at another place and with words of its own, so
that no two are equal. Every run has a store of its own, and all use one Prefect server. The CPU time of a run
is that of all processes with its mark in their environment, those of a cluster among them; the server's is
what it used from the start of the run until it had nothing more to do, beyond what it uses during a run
without Prefect. Orchestration is what a run and the server use beyond the first runner named, which should be
`no-prefect`. Digests of all artifacts must be equal before a figure counts.

The last table is the stages' CPU time, without Prefect and in one thread, for estimates of larger corpora.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

PROFILE = """
name = "large"
[sources.large]
files = ["text/*.jsonl"]
[ingest]
shard_bytes = {shard_bytes}
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
RUNNERS = ("no-prefect", "threads", "processes", "dask", "ray")
_MARK = "TOKMILL_BENCHMARK"
_FILE_BYTES = 64 << 20
_TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds of a run: wall time, CPU time of its processes, CPU time of the server."""

    wall: float
    cpu: float
    server: float


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files, compressed or not")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--shard-megabytes", type=int, default=64)
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=RUNNERS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--only-stages", action="store_true", help="only the tables of the stages")
    parser.add_argument("--work", type=Path, help="where text and stores are; a temporary folder by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        folder = Path(name)
        num_bytes = write_text(asked.files, folder / "text", int(asked.gigabytes * 1e9))
        profile = PROFILE.format(shard_bytes=asked.shard_megabytes << 20)
        (folder / "large.toml").write_text(profile, encoding="utf-8")
        print(f"{num_bytes / 1e9:.2f} GB of text; load {os.getloadavg()[0]:.1f}", flush=True)
        if not asked.only_stages:
            with server(folder / "prefect") as environment:
                compare(folder, environment, asked.runners, asked.workers)
        show_stages(folder, num_bytes)


def write_text(files: Sequence[Path], folder: Path, num_bytes: int) -> int:
    """Write about that many bytes of text as JSONL; return how many they are."""
    texts = [text for file in files for text in _texts(file)]
    folder.mkdir()
    written, generator, out = 0, random.Random(0), None
    while written < num_bytes:
        for text in texts:
            if out is None or out.tell() > _FILE_BYTES:
                out = (folder / f"{len(list(folder.iterdir())):05}.jsonl").open("w", encoding="utf-8")
            turned = _turned(text, generator)
            written += len(turned.encode())
            out.write(json.dumps({"text": turned}, ensure_ascii=False) + "\n")
    if out is not None:
        out.close()
    return written


def _texts(file: Path) -> list[str]:
    from tokmill.tasks.formats.text.documents import documents_of
    from tokmill.tasks.formats.text.readers import read_file_batches
    from tokmill.tasks.formats.text.sources import ReadOptions

    batches = read_file_batches(file, "jsonl", ReadOptions())
    return [text.decode() for batch in batches for text in documents_of(batch.data, batch.offsets)]


def _turned(text: str, generator: random.Random) -> str:
    """Begin a text in its middle, and add a few words that it alone has."""
    at = text.find(" ", generator.randrange(len(text) + 1)) + 1
    own = " ".join(f"{generator.getrandbits(40):x}" for _ in range(1 + len(text) // 2000))
    return f"{own} {text[at:]} {text[:at]}"


def compare(
    folder: Path, environment: Mapping[str, str], runners: Sequence[str], workers: Sequence[int]
) -> None:
    """Run the profile in all ways, and print a row for each."""
    run(folder, environment, "no-prefect", 1, "--set", 'sources.large.files=["text/00000.jsonl"]')  # compiles
    print("| runner | workers | wall s | CPU s | server's CPU s | orchestration |")
    print("| --- " + "| ---: " * 5 + "|")
    expected = None
    for number in workers:
        without: Spent | None = None
        for runner in runners:
            spent, digests = run(folder, environment, runner, number)
            expected = expected or digests
            if digests != expected:
                raise SystemExit(f"{runner} with {number} workers made other artifacts")
            without = without or spent
            idle = without.server / without.wall * spent.wall
            total = spent.cpu + max(spent.server - idle, 0)
            share = (total - without.cpu) / total
            times = f"{spent.wall:.0f} | {spent.cpu:.0f} | {total - spent.cpu:.1f}"
            print(f"| {runner} | {number} | {times} | {share:.1%} |", flush=True)


def run(
    folder: Path, environment: Mapping[str, str], runner: str, workers: int, *options: str
) -> tuple[Spent, Mapping[str, str]]:
    """Run the profile in an empty store; return what it took, and the artifacts' digests."""
    mark, store = str(uuid4()), folder / "store"
    how = ["--no-prefect"] if runner == "no-prefect" else ["--set", f"execution.runner={runner}"]
    arguments = ["run", "large.toml", *how, "--workers", str(workers), "--json", *options]
    command = [sys.executable, "-m", "tokmill", *arguments]
    own = {**environment, _MARK: mark, "TOKMILL_STORE": str(store)}
    before, began = _cpu_of(environment[_MARK]), time.monotonic()
    with (folder / "said").open("wb") as said:
        started = subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=said)
        seen = Counter[str]()
        while started.poll() is None:
            seen |= _processes(mark)
            time.sleep(0.2)
        wall = time.monotonic() - began
    if started.returncode:
        raise SystemExit(f"{runner} with {workers} workers failed:\n{(folder / 'said').read_text()}")
    spent = Spent(wall, sum(seen.values()) / _TICKS, _quiet(environment[_MARK]) - before)
    digests = _digests(store)
    shutil.rmtree(store)
    return spent, digests


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
    while (now := _cpu_of(mark)) - last > 0.2:
        last = now
        time.sleep(2)
    return now


def _digests(store: Path) -> dict[str, str]:
    records = [json.loads(path.read_bytes()) for path in store.glob("*/*/record.json")]
    return {record["fingerprint"]: record["content_digest"] for record in records}


@contextmanager
def server(home: Path) -> Iterator[dict[str, str]]:
    """A Prefect server; yields the environment for its clients."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "TOKMILL"))}
    port = 4000 + os.getpid() % 999
    api = f"http://127.0.0.1:{port}/api"
    own = {"PREFECT_HOME": str(home), "PREFECT_API_URL": api, _MARK: str(uuid4()), "DO_NOT_TRACK": "1"}
    environment = {**kept, **own, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    with (
        (home.parent / "server.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as started,
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


def show_stages(folder: Path, num_bytes: int) -> None:
    """Run the stages one after the other in this process, and print their CPU time."""
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.composition import compose
    from tokmill.flows.run.dag import Node, Step, walk
    from tokmill.flows.run.sources import resolve_sources
    from tokmill.tasks.store import Store

    os.chdir(folder)
    store, spent, tasks = Store.open(folder / "store"), defaultdict[str, float](float), Counter[str]()
    profile = load_profile(Path("large.toml"))

    def make(step: Step) -> Node:
        began = time.process_time()
        ref = store.realize(step.request()).ref
        spent[step.stage.verb] += time.process_time() - began
        tasks[step.stage.verb] += 1
        return ref

    walk(compose(profile, resolve_sources(profile, store), store.path).jobs, make)
    print("\n| stage | tasks | CPU s | MB of text per CPU s |\n| --- | ---: | ---: | ---: |")
    for verb, seconds in spent.items():
        print(f"| {verb} | {tasks[verb]} | {seconds:.1f} | {num_bytes / 1e6 / max(seconds, 0.01):.0f} |")
    sizes = Counter[str]()
    for record in store.root.glob("*/*/record.json"):
        for file in record.parent.iterdir():
            sizes[record.parent.parent.name] += file.stat().st_size
        sizes["(records)"] += record.stat().st_size
    print("\n| kind | bytes per byte of text |\n| --- | ---: |")
    for kind, size in sorted(sizes.items()):
        print(f"| {kind} | {size / num_bytes:.4f} |")


if __name__ == "__main__":
    main()
