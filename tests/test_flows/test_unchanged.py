"""A run that finds everything in the store: shown at a server that is configured, and quick.

docs/cli.md shows the artifacts of the same run; its digests are compared here, where the run is made anyway.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.stopped import wait_until

# What takes a tenth of a second or more to import, or belongs to an extra.
HEAVY = ("prefect", "numba", "llvmlite", "fsspec", "s3fs", "dask", "distributed", "ray", "httpx", "fastapi")
OF_A_PROFILE = ("numpy", "pyarrow", "duckdb")
LOADED = "import sys\nfrom tokmill.__main__ import main\nsys.argv = ['tokmill', *{arguments!r}]\n"
LOADED += (
    "try:\n    main()\nfinally:\n    print([n for n in {names!r} if n in sys.modules], file=sys.stderr)\n"
)


def loaded_by(folder: Path, names: tuple[str, ...], *arguments: str) -> Any:
    """Run a command where no server is configured; return which of these modules it has imported."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = clean_environment(HOME=str(home), TOKMILL_STORE=str(folder / "store"))
    code = LOADED.format(arguments=list(arguments), names=names)
    # a plan of text with combining marks needs numba, to see where they are cut; that of the sample has none
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return json.loads(done.stderr.splitlines()[-1].replace("'", '"'))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run without Prefect, which was not even imported."""
    folder = tmp_path_factory.mktemp("project")
    assert loaded_by(folder, ("prefect",), "run", "smoke", "--no-prefect") == []
    assert list((folder / "store" / "card").iterdir())
    return folder


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("--help",), ("ls",), ("plan", "smoke"), ("run", "smoke"), ("run", "--help")],
)
def test_commands_that_make_nothing_import_nothing_heavy(arguments: tuple[str, ...], project: Path) -> None:
    assert loaded_by(project, HEAVY, *arguments) == []


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("run", "--help")])
def test_help_imports_no_arrays_and_no_database(arguments: tuple[str, ...], project: Path) -> None:
    assert loaded_by(project, OF_A_PROFILE, *arguments) == []


def test_the_guide_to_the_command_line_has_the_digests_of_today(checkout: Path, project: Path) -> None:
    page = (checkout / "docs" / "cli.md").read_text(encoding="utf-8")
    records = [json.loads(path.read_bytes()) for path in project.glob("store/*/*/record.json")]
    made = {record["kind"]: record for record in records}
    kinds = ("packed", "tokenizer", "tokenizer_card", "card", "audit")
    shown = [f"tokmill-store/{kind}/{made[kind]['fingerprint'][:16]}" for kind in kinds]

    assert [each for each in shown if each not in page] == [], "run: python docs/refresh.py docs/cli.md"


def runs_at(client: SyncPrefectClient) -> dict[str, Any]:
    """The flow runs of a server by id."""
    return {str(run.id): run for run in client.read_flow_runs(limit=200)}


@pytest.mark.server
def test_a_server_shows_a_run_without_work_like_any_other(on_prefect: Tokmill) -> None:
    profile = write_project(on_prefect.folder, num_documents=60)
    made = on_prefect.run(profile)
    with (
        temporary_settings({PREFECT_API_URL: on_prefect.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        shutil.rmtree(on_prefect.store / ".prefect")  # as from another home
        found = on_prefect.run(profile)

        first, again = (runs_at(client)[document["run_id"]] for document in (made, found))
        assert found["num_cached"] == found["num_tasks"] == made["num_tasks"]
        assert (again.state_name, again.name, again.flow_id) == (first.state_name, first.name, first.flow_id)
        assert set(again.tags) == set(first.tags)
        assert again.end_time is not None

        # the server records a while later what it is told
        wanted = {stage(task.name) for task in of_run(client, first.id)}
        wait_until(lambda: wanted <= {stage(task.name) for task in of_run(client, again.id)}, "the tasks")
        tasks = [of_run(client, run.id) for run in (first, again)]
        assert {task.state_name for task in tasks[1]} == {"Cached"}
        assert {stage(task.name) for task in tasks[1]} == {stage(task.name) for task in tasks[0]}
        train = next(task for task in tasks[1] if task.name == "train")
        assert {edge.id for edge in train.task_inputs["sealed"]} == {
            task.id for task in tasks[1] if task.name in ("count", "balance")
        }
        shown = [keys_of(client, run.id) for run in (first, again)]
        assert {"run-tiny", *(key for key in shown[0] if key and key.startswith("card"))} <= shown[1]


def stage(title: str) -> str:
    """The name of a stage in a title."""
    return title.partition("[")[0]


def of_run(client: SyncPrefectClient, run_id: Any) -> list[Any]:
    """The task runs of a flow run."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    return client.read_task_runs(flow_run_filter=wanted, limit=200)


def keys_of(client: SyncPrefectClient, run_id: Any) -> set[str | None]:
    """The keys of a flow run's artifacts."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    return {each.key for each in client.read_artifacts(artifact_filter=wanted, limit=200)}
