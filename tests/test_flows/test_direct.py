"""Runs without Prefect: the same artifacts, the same records, and no import of what is not needed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tokmill.flows.errors import RunError
from tokmill.flows.library import api
from tokmill.flows.prefect.settings import may_have_a_server
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run.dag import Dag, Job
from tokmill.flows.run.direct import reused, run_directly
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.target import WHOLE, Target
from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.store import Store
from tokmill.tokenizer.core.stopping import raise_if_stopped

WITHOUT = "import sys\nfrom tokmill.__main__ import main\nsys.argv = ['tokmill', *{arguments!r}]\n"
WITHOUT += "try:\n    main()\nfinally:\n    assert 'prefect' not in sys.modules, 'Prefect was imported'\n"


class Nothing(Params):
    """No parameters."""


def digests(store: Path) -> dict[str, str]:
    """The content digest of every artifact, by fingerprint."""
    records = [json.loads(path.read_bytes()) for path in store.glob("*/*/record.json")]
    return {record["fingerprint"]: record["content_digest"] for record in records}


def run_states(store: Path) -> list[tuple[str, str]]:
    """State and message of every run in the store."""
    runs = [json.loads(path.read_bytes()) for path in (store / "runs").glob("*.json")]
    return [(run["state"], run["message"]) for run in runs]


def without_prefect(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a command where no server is configured; fail if it imports Prefect."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = clean_environment(HOME=str(home), TOKMILL_STORE=str(folder / "store"))
    code = WITHOUT.format(arguments=[*arguments, "--json"])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.server
def test_artifacts_are_those_of_a_run_on_prefect(finished_project: Tokmill, on_prefect: Tokmill) -> None:
    on_prefect.run(write_project(on_prefect.folder), "--workers", "1")

    assert digests(on_prefect.store) == digests(finished_project.store)


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_artifacts(
    finished_project: Tokmill, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished_project.folder)
    result = api.run("tiny.toml", store=tmp_path, workers=workers, prefect=False)

    assert result.num_made == len(result.rows) > 20
    assert digests(tmp_path) == digests(finished_project.store)


def test_an_unchanged_run_starts_no_server_and_is_recorded(project: Tokmill) -> None:
    before = len(run_states(project.store))
    document = without_prefect(project.folder, "run", "tiny.toml")

    assert document["num_cached"] == document["num_tasks"] > 20
    states = run_states(project.store)
    assert len(states) == before + 1
    assert set(states) == {("completed", "")}


def test_a_run_is_not_unchanged_if_one_artifact_is_missing_or_damaged(
    finished_project: Tokmill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished_project.folder)
    profile, store = load_profile("tiny.toml"), tmp_path / "store"
    result = api.run(profile, store=store, prefect=False)
    machine = Machine.of(profile.execution, store=str(store))
    assert reused(profile, WHOLE, machine, RunState()) is not None

    packed = Store.open(store).path(result.refs["packed"])
    file = next(packed.glob("shard-*.bin"))
    file.write_bytes(file.read_bytes()[:-2])

    assert reused(profile, WHOLE, machine, RunState()) is None
    again = api.run(profile, store=store, prefect=False)
    made = [row.task for row in again.rows if row.how == "made"]
    assert made == ["pack[shard/1]", "pack"]  # they share the file, by a hard link
    assert digests(store) == digests(finished_project.store)


def of_one(run: Any) -> Target:
    """A DAG of one job."""

    class One(Target):
        def compose(self, profile: Profile, store: Store, sources: Sources) -> Dag:
            stage = Stage(verb="one", task="one", kind="one", version=1, params=Nothing, run=run)
            job = Job(stage, "one", "test", Nothing(), {})
            return Dag([job], {"one": job})

    return One()


def machine_at(store: Path, workers: int) -> tuple[Any, Machine]:
    """A profile, and a machine with this store."""
    profile = load_profile("smoke")
    return profile, Machine.of(profile.execution, store=str(store), workers=workers)


def test_with_one_worker_a_stage_runs_in_the_calling_thread(tmp_path: Path) -> None:
    seen: list[threading.Thread] = []

    def run(params: Params, *, out: Path) -> Outcome:
        seen.append(threading.current_thread())
        return Outcome(metrics={})

    profile, machine = machine_at(tmp_path, 1)
    run_directly(profile, of_one(run), machine, RunState())

    assert seen == [threading.current_thread()]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_names_the_task_and_is_recorded(tmp_path: Path, workers: int) -> None:
    def run(params: Params, *, out: Path) -> Outcome:
        raise ValueError("this stage always fails")

    profile, machine = machine_at(tmp_path, workers)
    with pytest.raises(RunError, match="one: this stage always fails"):
        run_directly(profile, of_one(run), machine, RunState())

    assert run_states(tmp_path) == [("failed", "one: this stage always fails")]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_run_is_recorded_as_cancelled_and_work_goes_on(tmp_path: Path, workers: int) -> None:
    stopped: list[bool] = []

    def run(params: Params, *, out: Path) -> Outcome:
        if workers == 1:
            raise KeyboardInterrupt
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            while True:
                raise_if_stopped()
                time.sleep(0.01)
        finally:
            stopped.append(True)

    profile, machine = machine_at(tmp_path, workers)
    with pytest.raises(KeyboardInterrupt):
        run_directly(profile, of_one(run), machine, RunState())

    assert run_states(tmp_path) == [("cancelled", "KeyboardInterrupt")]
    assert stopped == [True] * (workers - 1)
    raise_if_stopped()


CONFIGURED = '[profiles.team]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n[profiles.ephemeral]\n'


@pytest.mark.parametrize(
    ("environment", "files", "expected"),
    [
        ({}, {}, False),
        ({"PREFECT_API_URL": "http://127.0.0.1:1/api"}, {}, True),
        ({}, {"home/profiles.toml": f'active = "team"\n{CONFIGURED}'}, True),
        ({}, {"home/profiles.toml": f'active = "ephemeral"\n{CONFIGURED}'}, False),
        ({"PREFECT_PROFILE": "team"}, {"home/profiles.toml": f'active = "ephemeral"\n{CONFIGURED}'}, True),
        ({"PREFECT_PROFILE": "local"}, {}, True),
        ({}, {"home/profiles.toml": "not TOML at all"}, True),
        ({}, {".env": "PREFECT_API_URL=http://127.0.0.1:1/api"}, True),
        ({}, {".env": "OTHER=1", "pyproject.toml": "[tool.other]"}, False),
        ({}, {"prefect.toml": ""}, True),
        ({}, {"pyproject.toml": "[tool.prefect.api]"}, True),
    ],
)
def test_whether_a_server_may_be_configured(
    environment: dict[str, str],
    files: dict[str, str],
    expected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    for name, value in {"PREFECT_HOME": str(tmp_path / "home"), **environment}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)

    assert may_have_a_server() == expected
