"""Runs at once of two deployments, by workers of three machines, on one store in a bucket.

The machines share the bucket and the Prefect server, and nothing else: each has a home, and so caches, locks
and state, of its own. In the end all runs and all artifacts are in the catalog, each published once, and no
machine has made one twice: whoever needs one that another run of the machine is making waits for it. A run of
another flow, which has a limit of its own, goes on beside them. There are four runs of the deployments, with
TOKMILL_EVERYTHING eight.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.effort import EVERYTHING
from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.corpora import write_project
from tests.test_flows.served import Service, wait_for_line
from tokmill.flows.profile.served import ServedFolder

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.objects]

AT_ONCE = 4 if EVERYTHING else 2  # of each deployment: each queue has a run
ALL_RUNS_SECONDS = 900  # many runs on few cores; no measure of speed
ELSEWHERE = ("second", "third")
SETTINGS = f"\n[schedule]\nruns_at_once = {AT_ONCE}\n[execution]\nworkers = 1\n"
STATES = "SELECT state, count(*) AS runs FROM runs GROUP BY state"
MADE = "SELECT fingerprint, count(*) AS times FROM run_artifacts WHERE how = 'made' GROUP BY fingerprint"


def test_runs_at_once_of_two_deployments_publish_every_artifact_once(
    migrated_home: Path, bucket: Bucket, tmp_path: Path
) -> None:
    url = f"{bucket.url}/store"
    first, *others = [machine(tmp_path / name, bucket) for name in ("first", *ELSEWHERE)]
    write_profiles(first.folder, "tiny")
    write_profiles(others[0].folder, "longer")
    shutil.copytree(migrated_home, tmp_path / "first" / "home" / ".prefect")
    with served(first, url) as service, ExitStack() as workers:
        team = {"PREFECT_API_URL": f"{service.url}/api"}
        registered = others[0]("server", "deploy", "--store", url, "--json", **team).document
        for other, queue in zip(others, ELSEWHERE, strict=True):
            workers.enter_context(worker(other, registered["pool"], queue, team))
        ours = ServedFolder.of(first.folder, url).name
        theirs = ServedFolder.of(others[0].folder, url).name

        runs = [start(service, f"build-corpus/{ours}.tiny") for _ in range(AT_ONCE)]
        for number in range(AT_ONCE):
            queue = ELSEWHERE[number % len(ELSEWHERE)]
            runs.append(start(service, f"build-corpus/{theirs}.longer", work_queue_name=queue))
        chosen = {"profile": "longer.toml", "store": url}
        runs.append(start(service, f"train-tokenizer/{theirs}", parameters=chosen, work_queue_name="third"))
        ended = [service.end_of(run, ALL_RUNS_SECONDS) for run in runs]

    assert {run["state_name"] for run in ended} == {"Completed"}, [run["state"]["message"] for run in ended]
    assert table(first, url, STATES) == [{"state": "completed", "runs": len(runs)}]
    made = {row["fingerprint"]: row["times"] for row in table(first, url, MADE)}
    assert max(made.values()) <= 1 + len(ELSEWHERE)  # a machine makes nothing twice
    assert {row["fingerprint"] for row in table(first, url, "SELECT fingerprint FROM artifacts")} == set(made)
    keys = bucket.keys()
    assert len([key for key in keys if key.endswith("/record.json")]) == len(made)
    for name in ELSEWHERE:  # each of them has worked
        assert any((tmp_path / name / "home" / ".cache").rglob("record.json"))


def machine(folder: Path, bucket: Bucket) -> Tokmill:
    """A machine: a home, and a folder for a project; only compiled kernels are shared, to save time."""
    project, home = folder / "project", folder / "home"
    home.mkdir(parents=True)
    project.mkdir()
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    quick = {"PYTHONUNBUFFERED": "1", "PREFECT_WORKER_QUERY_SECONDS": "1"}
    return Tokmill(project, clean_environment(**bucket.server.environment(), **own, **quick))


def write_profiles(folder: Path, name: str) -> None:
    """Write the sources, and a profile of this name; all share their artifacts up to the mixture."""
    folder.rmdir()
    write_project(folder, num_documents=60)
    text = (folder / "tiny.toml").read_text("utf-8")
    (folder / "tiny.toml").unlink()
    length = "length = 128" if name == "tiny" else "length = 160"
    text = text.replace('name = "tiny"', f'name = "{name}"').replace("length = 128", length)
    (folder / f"{name}.toml").write_text(text + SETTINGS, "utf-8")


@contextmanager
def served(machine: Tokmill, store: str) -> Iterator[Service]:
    """Serve the machine's project with `tokmill up`: a server, and a worker for the project."""
    port = free_port()
    process = machine.start("up", "--port", str(port), "--store", store)
    try:
        wait_for_line(process, "up: ")
        yield Service(process, machine, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=120)


@contextmanager
def worker(machine: Tokmill, pool: str, queue: str, environment: dict[str, str]) -> Iterator[None]:
    """Have a worker of a machine take the runs of one queue of a pool."""
    command = ["server", "work", "--pool", pool, "--queue", queue, "--allow-profiles"]
    with (machine.folder.parent / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tokmill", *command],
            cwd=machine.folder,
            env={**machine.environment, **environment},
            stdout=log,
            stderr=log,
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


def start(service: Service, deployment: str, **asked: Any) -> str:
    """Start a run of a deployment; return its id."""
    found = service.call(f"/deployments/name/{deployment}")
    made = service.call(f"/deployments/{found['id']}/create_flow_run", asked)
    return str(made["id"])


def table(machine: Tokmill, store: str, query: str) -> list[dict[str, Any]]:
    """Ask the catalog."""
    found: list[dict[str, Any]] = json.loads(machine("sql", query, "--json", TOKMILL_STORE=store).out)
    return found
