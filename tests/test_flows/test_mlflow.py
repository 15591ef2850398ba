"""A run in MLflow, on its real server: as it works and as it ended, with figures, card and report."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.test_flows.commands import clean_environment, free_port
from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import Noting
from tests.test_flows.served import POLL
from tests.test_flows.test_direct import of_one, run_states
from tests.test_flows.test_openlineage import fails, interrupts
from tokmill.flows.errors import RunError
from tokmill.flows.library import api
from tokmill.flows.profile import load_profile
from tokmill.flows.run.direct import run_directly
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import read_run, run_path

pytestmark = [pytest.mark.mlflow, pytest.mark.slow]
pytest.importorskip("mlflow.server", reason="needs all of MLflow: pip install mlflow", exc_type=ImportError)
MlflowClient = pytest.importorskip("mlflow.tracking").MlflowClient


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A tracking server with a database and a folder of its own."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    stored = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder)]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *stored]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert server.poll() is None, (folder / "log").read_text()
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                POLL.wait(0.2)
        yield address
    finally:
        server.terminate()
        server.wait()


def logged(address: str, experiment: str) -> list[Any]:
    """The runs of an experiment, the newest first."""
    client = MlflowClient(tracking_uri=address)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found else []


def test_a_run_is_there_with_parameters_figures_card_and_report(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path, num_documents=30)
    overrides = [f'mlflow.tracking_uri="{address}"', "holdout.share=0.3"]
    profile = load_profile(tmp_path / "tiny.toml", overrides)
    made = api.run(profile, store=tmp_path / "store", prefect=False)
    api.run(profile, store=tmp_path / "store")

    assert capfd.readouterr().out == ""  # where scripts read
    again, first = logged(address, "tiny")
    assert (first.info.status, again.info.status) == ("FINISHED", "FINISHED")
    assert first.data.tags["tokmill.run"] == made.run_id
    assert first.data.tags["tokmill.artifact.packed"] == "packed/tiny@v1"
    assert first.data.tags["tokmill.tasks.made"] == str(made.num_made)
    assert again.data.tags["tokmill.tasks.cached"] == str(made.num_made)
    assert first.data.params["balance.method"] == "temperature"
    assert first.data.params["sources.many.files"] == f'["{tmp_path}/many/*.jsonl"]'
    figures = read_run(run_path(Store(tmp_path / "store").layout.runs, made.run_id)).metrics
    assert first.data.metrics == {
        name: value for name, value in figures.items() if isinstance(value, int | float)
    }
    assert first.data.metrics == again.data.metrics
    client = MlflowClient(tracking_uri=address)
    files = {entry.path for entry in client.list_artifacts(first.info.run_id)}
    assert files == {"profile.json", "card.md", "card.json", "report.html"}


@pytest.mark.parametrize(
    ("run", "raised", "status"), [(fails, RunError, "FAILED"), (interrupts, KeyboardInterrupt, "KILLED")]
)
def test_a_run_that_does_not_complete_says_why(
    run: Any, raised: type[BaseException], status: str, address: str, tmp_path: Path
) -> None:
    overrides = [f'mlflow.tracking_uri="{address}"', f"mlflow.experiment={status}"]
    profile = load_profile("smoke", overrides)
    machine = Machine.of(profile.execution, store=str(tmp_path), workers=1)
    with pytest.raises(raised):
        run_directly(profile, of_one(run), machine, RunState(Noting()))

    (found,) = logged(address, status)
    assert found.info.status == status
    assert found.data.tags["tokmill.message"] in {"one: this stage always fails", "KeyboardInterrupt"}


def test_a_local_store_needs_no_server(tmp_path: Path) -> None:
    told, where = Noting(), f"sqlite:///{tmp_path}/mlflow.db"
    profile = load_profile("smoke", [f'mlflow.tracking_uri="{where}"', "mlflow.artifacts=[]"])
    api.run(profile, store=tmp_path / "store", prefect=False, until=["balance"], reporter=told)

    (found,) = logged(where, "smoke")
    assert found.info.status == "FINISHED"
    assert told.notes == []


def test_names_that_mlflow_refuses_and_any_number_of_figures_are_taken(tmp_path: Path) -> None:
    many, where = range(1001), f"sqlite:///{tmp_path}/mlflow.db"
    for number in many:
        (tmp_path / f"{number}.txt").write_text(f"text of source {number}", "utf-8")
    table = {
        "name": "own",
        "sources": {f"s{number}": {"files": [str(tmp_path / f"{number}.txt")]} for number in many},
        "train": {
            "family": "unigram",
            "mode": "sentencepiece",
            "normalization_rules": {"½": "1/2", "/": "x", "“": "'"},
        },
        "mlflow": {"tracking_uri": where, "artifacts": []},
    }
    made = tokmill.run(table, store=tmp_path / "store", prefect=False, until=["balance"])

    (found,) = logged(where, "own")
    rules = {name.rpartition(".")[2]: text for name, text in found.data.params.items() if ".normal" in name}
    assert rules == {"½": "1/2", "u002F": "x", "u201C": "'"}
    figures = made.artifacts["balance"].figures
    numbers = {f"balance.{name}" for name, value in figures.items() if isinstance(value, int | float)}
    assert len(numbers) > 1000
    assert numbers <= set(found.data.metrics)


def test_a_server_that_is_not_there_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    told = Noting()
    profile = load_profile("smoke", ['mlflow.tracking_uri="http://127.0.0.1:9"'])
    api.run(profile, store=tmp_path, prefect=False, until=["balance"], reporter=told)

    (note,) = told.notes
    assert note.startswith("mlflow: ")
    assert note.endswith("the run is not affected")
    assert run_states(tmp_path) == [("completed", "")]
