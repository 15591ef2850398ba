"""A run in MLflow, on its real server: as it works and as it ended, with figures, card and report."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.object_server import wait_until_open
from tests.test_flows.commands import clean_environment, free_port
from tests.test_flows.corpora import Noting, write_project
from tests.test_flows.jobs import fail, interrupt, run_one, run_states
from tokmill.flows.errors import RunError
from tokmill.flows.library import api
from tokmill.flows.profile import load_profile
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
    try:
        wait_until_open(port, server)
        yield f"http://127.0.0.1:{port}"
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
    counted = first.data.tags["tokmill.tasks.made"], again.data.tags["tokmill.tasks.cached"]
    assert counted == (str(made.num_made),) * 2
    assert first.data.params["balance.method"] == "temperature"
    assert first.data.params["sources.many.files"] == f'["{tmp_path}/many/*.jsonl"]'
    figures = read_run(run_path(Store(tmp_path / "store").layout.runs, made.run_id)).metrics
    numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    assert first.data.metrics == again.data.metrics == numbers
    files = MlflowClient(tracking_uri=address).list_artifacts(first.info.run_id)
    assert {entry.path for entry in files} == {"profile.json", "card.md", "card.json", "report.html"}


@pytest.mark.parametrize(
    ("run", "raised", "status"), [(fail, RunError, "FAILED"), (interrupt, KeyboardInterrupt, "KILLED")]
)
def test_a_run_that_does_not_complete_says_why(
    run: Any, raised: type[BaseException], status: str, address: str, tmp_path: Path
) -> None:
    with pytest.raises(raised):
        run_one(run, tmp_path, f'mlflow.tracking_uri="{address}"', f"mlflow.experiment={status}")
    (found,) = logged(address, status)
    assert found.info.status == status
    assert found.data.tags["tokmill.message"] in {"one: this stage always fails", "KeyboardInterrupt"}


def test_a_local_store_takes_names_that_mlflow_refuses_and_any_number_of_figures(tmp_path: Path) -> None:
    many, where = range(1001), f"sqlite:///{tmp_path}/mlflow.db"
    for number in many:
        (tmp_path / f"{number}.txt").write_text(f"text of source {number}", "utf-8")
    rules = {"½": "1/2", "/": "x", "“": "'"}
    table = {
        "name": "own",
        "sources": {f"s{number}": {"files": [str(tmp_path / f"{number}.txt")]} for number in many},
        "train": {"family": "unigram", "mode": "sentencepiece", "normalization_rules": rules},
        "mlflow": {"tracking_uri": where, "artifacts": []},
    }
    made = tokmill.run(table, store=tmp_path / "store", prefect=False, until=["balance"])
    (found,) = logged(where, "own")
    assert found.info.status == "FINISHED"
    given = {name.rpartition(".")[2]: text for name, text in found.data.params.items() if ".normal" in name}
    assert given == {"½": "1/2", "u002F": "x", "u201C": "'"}
    figures = made.artifacts["balance"].figures
    numbers = {f"balance.{name}" for name, value in figures.items() if isinstance(value, int | float)}
    assert len(numbers) > 1000
    assert numbers <= set(found.data.metrics)


def test_a_server_that_is_not_there_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    profile, told = load_profile("smoke", ['mlflow.tracking_uri="http://127.0.0.1:9"']), Noting()
    api.run(profile, store=tmp_path, prefect=False, until=["balance"], reporter=told)
    (note,) = told.notes
    assert note.startswith("mlflow: ")
    assert note.endswith("the run is not affected")
    assert run_states(tmp_path) == [("completed", "")]
