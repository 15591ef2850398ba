"""Tasks in other processes and on clusters: the same artifacts and records, even if a worker is killed.

Clusters of Dask and Ray need the extras of these names; without them their tests skip visibly.
"""

import fnmatch
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.effort import EVERYTHING
from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, clean_environment, finished, free_port
from tests.test_flows.corpora import write_project
from tests.test_flows.jobs import digests
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path

START_SECONDS = 120
DOCUMENTS = 1200


class Expected(NamedTuple):
    """What a run on threads made: digests by fingerprint; and its record."""

    digests: dict[str, str]
    run: Run


@pytest.fixture(scope="module")
def expected(prefect_server: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """A run on threads."""
    tokmill = Tokmill(tmp_path_factory.mktemp("threads"), prefect_server)
    document = tokmill.run(write_project(tokmill.folder, num_documents=DOCUMENTS), "--no-prefect")
    return Expected(digests(tokmill.store), recorded(tokmill, document))


def recorded(tokmill: Tokmill, document: dict[str, Any]) -> Run:
    """Return the record of a run."""
    return read_run(run_path(Store.open(tokmill.store).layout.runs, document["run_id"]))


def assert_recorded_whole(run: Run, on_threads: Run, runner: str) -> None:
    """Check that the record of a run has all that is recorded of one on threads, in the same order."""
    assert (run.state, run.machine.runner, run.machine.workers) == ("completed", runner, 2)
    assert [(each.task, each.ref) for each in run.artifacts] == [
        (each.task, each.ref) for each in on_threads.artifacts
    ]
    for each in run.artifacts:
        if runner in CLUSTERS and each.how != "made":
            continue  # the worker that was killed had just published it, and its task found it elsewhere
        assert each.how == "made", each
        assert (each.seconds or 0) > 0, each
        assert (each.peak_bytes or 0) > 16 << 20, each
    assert run.metrics == on_threads.metrics != {}
    assert [each.digest for each in run.inputs] == [each.digest for each in on_threads.inputs] != []
    assert run.packages == on_threads.packages
    assert {each.field for each in run.overrides} >= {"execution.runner"}
    assert run.ended is not None
    assert run.url is not None


@pytest.mark.server
@pytest.mark.slow
def test_processes_give_the_same_artifacts_and_the_record_of_them(
    on_prefect: Tokmill, expected: Expected
) -> None:
    tokmill = on_prefect
    profile = write_project(tokmill.folder, num_documents=DOCUMENTS)
    document = tokmill.run(profile, "--set", "execution.runner=processes", "--workers", "2")

    assert digests(tokmill.store) == expected.digests
    assert_recorded_whole(recorded(tokmill, document), expected.run, "processes")
    assert document["num_made"] == document["num_tasks"]
    assert all(task["seconds"] > 0 for task in document["tasks"])

    again = tokmill.run(profile, "--set", "execution.runner=processes", "--workers", "2")
    assert again["num_cached"] == again["num_tasks"]
    found = recorded(tokmill, again)
    assert {(each.how, each.seconds, each.peak_bytes) for each in found.artifacts} == {("cached", None, None)}
    assert found.metrics == expected.run.metrics


APART = 'mount -t tmpfs tmpfs "$0" && cd "$0" && exec "$@"'


@contextmanager
def process(
    *command: str, environment: dict[str, str], hidden: Path | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with its children in a group of its own, which is killed in the end.

    It sees an empty folder of its own in the place of `hidden`.
    """
    apart = ["unshare", "--mount", "sh", "-c", APART, str(hidden)] if hidden else []
    started = subprocess.Popen(
        [*apart, str(Path(sys.executable).parent / command[0]), *command[1:]],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        kill(started)


def kill(started: "subprocess.Popen[bytes]") -> None:
    """Kill a process and what it started, as a power cut would."""
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    started.wait()


@contextmanager
def dask_cluster(
    environment: dict[str, str], hidden: Path | None = None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A scheduler and two workers; yields its address, and what kills a worker."""
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = ("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard")
    worker = ("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    with (
        process("dask", *scheduler, environment=environment),
        process("dask", *worker, environment=environment, hidden=hidden) as first,
        process("dask", *worker, environment=environment, hidden=hidden),
    ):
        distributed = importlib.import_module("distributed")
        with distributed.Client(address, timeout=START_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=START_SECONDS)
        yield address, lambda: kill(first)


@contextmanager
def ray_cluster(
    environment: dict[str, str], hidden: Path | None = None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A head and a second node with one processor each; yields its address, and what kills that node."""
    port = str(free_port())
    address = f"127.0.0.1:{port}"
    head = ("start", "--head", "--port", port, "--num-cpus", "1", "--include-dashboard", "false", "--block")
    node = ("start", "--address", address, "--num-cpus", "1", "--block")
    # an earlier `ray.init` of this user leaves a token, which a new head would then ask for
    environment = {**environment, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    with process("ray", *head, environment=environment, hidden=hidden):
        wait_for(lambda: ray_nodes(address) >= 1)
        with process("ray", *node, environment=environment, hidden=hidden) as second:
            wait_for(lambda: ray_nodes(address) >= 2)
            yield address, lambda: kill(second)


def ray_nodes(address: str) -> int:
    """Count the nodes that are alive; none if nobody answers."""
    code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR'); "
    code += "print('nodes', sum(node['Alive'] for node in ray.nodes()))"
    done = subprocess.run(
        [sys.executable, "-c", code, address], capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout.split()
    return int(said[said.index("nodes") + 1]) if "nodes" in said else 0


def wait_for(happened: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Wait until something has happened."""
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


CLUSTERS: dict[str, Any] = {"dask": dask_cluster, "ray": ray_cluster}


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.clusters
@pytest.mark.parametrize("runner", CLUSTERS)
def test_a_cluster_that_loses_a_worker_at_encode_gives_the_same_artifacts(
    runner: str, on_prefect: Tokmill, expected: Expected
) -> None:
    tokmill = on_prefect
    pytest.importorskip(f"prefect_{runner}", exc_type=ImportError)
    profile = write_project(tokmill.folder, num_documents=DOCUMENTS)
    with CLUSTERS[runner](dict(tokmill.environment)) as (address, kill_worker):
        settings = ("--set", f"execution.runner={runner}", "--set", f"execution.address={address}")
        running = tokmill.start("run", profile, "--json", "--workers", "2", *settings)
        encoded = tokmill.store / "encoded_shard"
        wait_for(lambda: running.poll() is not None or len(list(encoded.glob("*/record.json"))) >= 3)
        kill_worker()
        outcome = finished(running)
        limit = ("--set", "train.vocab_size=640", "--set", "execution.timeouts.train=0.001s")
        limited = tokmill("run", profile, *settings, *limit)

    assert "train: it was stopped after 0.001s" in limited.err
    assert outcome.document["num_tasks"] > 30
    assert digests(tokmill.store) == expected.digests
    assert_recorded_whole(recorded(tokmill, outcome.document), expected.run, runner)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.clusters
@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0, reason="needs root"
)
@pytest.mark.parametrize("runner", CLUSTERS)
def test_workers_that_share_no_files_and_lose_one_make_the_same_in_a_bucket(
    runner: str, on_prefect: Tokmill, bucket: Bucket, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip(f"prefect_{runner}", exc_type=ImportError)
    environment = {**on_prefect.environment, **bucket.server.environment()}
    tokmill = Tokmill(on_prefect.folder, {**environment, "TOKMILL_CACHE": str(on_prefect.folder / "cache")})
    profile = project_in(bucket, tokmill.folder)
    tokmill.run(profile, "--no-prefect")
    with CLUSTERS[runner](tokmill.environment, tmp_path_factory.getbasetemp()) as (address, kill_worker):
        settings = ("--set", f"execution.runner={runner}", "--set", f"execution.address={address}")
        store = f"{bucket.url}/team"
        running = tokmill.start("run", profile, "--json", "--workers", "2", *settings, "--store", store)
        wait_for(lambda: running.poll() is not None or len(records_in(bucket, "encoded_shard")) >= 3)
        kill_worker()
        outcome = finished(running)

    assert outcome.document["num_tasks"] > 30
    assert records_in(bucket, "*") == digests(tokmill.store)


def project_in(bucket: Bucket, folder: Path) -> str:
    """Write a project whose sources are objects; return its profile."""
    profile = write_project(folder, num_documents=DOCUMENTS)
    for path in sorted(folder.glob("*/*.*")):
        bucket.put(f"raw/{path.relative_to(folder)}", path.read_bytes())
        path.unlink()
    text = (folder / profile).read_text(encoding="utf-8")
    (folder / profile).write_text(re.sub(r'"(many|few)/', rf'"{bucket.url}/raw/\1/', text), encoding="utf-8")
    return profile


def records_in(bucket: Bucket, stage: str) -> dict[str, str]:
    """The content digest of every artifact of a stage in a bucket, by fingerprint."""
    keys = fnmatch.filter(bucket.keys(), f"team/{stage}/*/record.json")
    records = [json.loads(bucket.get(key)) for key in keys]
    return {record["fingerprint"]: record["content_digest"] for record in records}


# By default artifacts of two families are made twice by this Python; with TOKMILL_EVERYTHING every family by
# every strategy in every format, and variants, also by the interpreters that TOKMILL_PYTHONS names.
PYTHONS = [path for path in os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep) if path and EVERYTHING]
Held = dict[str, dict[str, str]]


def held(folder: Path, python: str, *, seed: int, workers: int) -> Held:
    """Make everything with an interpreter; return what each artifact holds."""
    program = str(Path(__file__).parents[1] / "every_artifact.py")
    options = ["--workers", str(workers), *(["--all"] if EVERYTHING else [])]
    environment = clean_environment(PYTHONHASHSEED=str(seed))
    command = [python, program, str(folder), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Held = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_artifacts_are_equal_for_any_workers_order_of_hashes_and_python(tmp_path: Path) -> None:
    first = held(tmp_path / "first", sys.executable, seed=0, workers=1)
    for number, python in enumerate([sys.executable, *PYTHONS]):
        again = held(tmp_path / f"{number}", python, seed=1, workers=3)
        differing = [name for name in first.keys() | again.keys() if first.get(name) != again.get(name)]
        assert sorted(differing) == []
    kinds = Counter(name.partition("/")[0] for name in first)
    assert kinds["tokenizer"] >= (8 if EVERYTHING else 2)
    assert kinds["packed"] >= kinds["tokenizer"]
    assert kinds["encoded_shard"] > 2 * kinds["tokenizer"]
