"""Runs on Prefect: shards are many to a task run, cached ones are shown so, and results are never trusted."""

import base64
import json
import logging
import os
import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.context import get_run_context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import write_project
from tests.test_flows.jobs import digests, fail, job, mapped, write
from tests.test_flows.stopped import wait_until
from tests.test_tasks.store_stages import ask
from tokmill.flows.errors import ProfileError, RunError, UsageError
from tokmill.flows.prefect.runners import RUNNERS
from tokmill.flows.prefect.task import (
    GroupError,
    Sealed,
    as_task,
    divided,
    group_title,
    keep_logs_plain,
)
from tokmill.flows.profile import load_profile
from tokmill.flows.results import RunRow, wall_seconds
from tokmill.flows.run.dag import Job
from tokmill.flows.run.events import RunState
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.tasks import Ended, TaskSpec
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params
from tokmill.tasks.store import Provenance, Store
from tokmill.tokenizer.core.errors import LawError, TrainingError

REF = ArtifactRef(kind="one", name="test", fingerprint="0" * 64, content_digest="1" * 64)
NUM_PARTS, NUM_GROUPS, BAD = 40, 14, 20  # groups of three


@pytest.fixture
def prefect(prefect_server: dict[str, str]) -> Iterator[None]:
    """Prefect's settings of the session's server."""
    api = {PREFECT_API_URL: prefect_server["PREFECT_API_URL"], PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(api):
        yield
    logging.getLogger("prefect").handlers.clear()


def run_on_prefect(store: Path, jobs: list[Job]) -> tuple[Any, dict[str, str]]:
    """Run jobs; return the rows or the error, and the name of each task run with its state."""
    machine = Machine.of(load_profile("smoke").execution, store=str(store), workers=2)
    rows: list[Any] = []
    ids: list[Any] = []
    submitted: list[dict[str, UUID]] = []

    @flow(name="test-groups")
    def running() -> None:
        ids.append(get_run_context().flow_run.id)  # type: ignore[union-attr]
        provenance = Provenance.collect(flow_run_id=str(ids[0]))
        with RUNNERS["threads"](machine) as tasks:
            submitted.append(tasks.task_runs)
            executor = Executor(Store.open(store), tasks, RunState(), machine, provenance)
            executor.run(jobs)
            rows.extend(executor.state.rows)

    outcome: Any = rows
    try:
        running()
    except RunError as error:
        outcome = error
    with get_client(sync_client=True) as client:
        return outcome, final_states(client, ids[0], set(submitted[0].values()))


def final_states(client: SyncPrefectClient, flow_run: Any, task_runs: set[UUID]) -> dict[str, str]:
    """Return the states of task runs by name; the server takes a while to know how they ended."""

    def ended() -> bool:
        states = {each.id: each.state for each in of_run(client, flow_run)}
        return all(state is not None and state.is_final() for state in map(states.get, task_runs))

    wait_until(ended, "the server knew how all tasks ended")
    return {each.name: str(each.state_name) for each in of_run(client, flow_run)}


def of_run(client: SyncPrefectClient, run_id: Any) -> list[Any]:
    """The task runs of a flow run."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    return client.read_task_runs(flow_run_filter=wanted, limit=200)


@pytest.mark.server
def test_a_failed_shard_is_named_what_was_made_is_kept_and_cached_tasks_are_shown_so(
    prefect: None, tmp_path: Path
) -> None:
    def run(params: Params, *, out: Path) -> Outcome:
        return (fail if params.number == BAD else write)(params, out=out)  # type: ignore[attr-defined]

    def jobs(run: Any) -> list[Job]:
        root = job("root")
        each = mapped(run, NUM_PARTS, root)
        return [root, each, job("last", each=each)]

    error, states = run_on_prefect(tmp_path, jobs(run))
    assert (str(error), error.task) == (f"each[all/{BAD}]: this stage always fails", f"each[all/{BAD}]")
    assert len(states) == 1 + NUM_GROUPS
    assert [name for name, state in states.items() if state == "Failed"] == ["each[all/18-20]"]

    rows, states = run_on_prefect(tmp_path, jobs(write))
    assert [row.task for row in rows] == ["root", *(f"each[all/{n}]" for n in range(NUM_PARTS)), "last"]
    assert [row.task for row in rows if row.how == "made"] == [f"each[all/{BAD}]", "last"]
    assert sum(state == "Cached" for state in states.values()) == 1 + NUM_GROUPS - 1
    assert (states["each[all/18-20]"], states["each[all/39]"]) == ("Completed", "Cached")

    rows, states = run_on_prefect(tmp_path, jobs(write))
    assert ({row.how for row in rows}, set(states.values())) == ({"cached"}, {"Cached"})


@given(st.integers(0, 3000), st.integers(1, 64))
def test_groups_are_neighbours_and_enough_for_all_workers(num_items: int, workers: int) -> None:
    items = list(range(num_items))
    groups = list(divided(items, workers))
    assert [item for group in groups for item in group] == items
    assert min(num_items, workers) <= len(groups) <= max(16, 4 * workers)
    assert len({len(group) for group in groups[:-1]}) <= 1
    assert num_items > 16 or all(len(group) == 1 for group in groups)


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        (["ingest"], "ingest"),
        (["encode[english/0]", "encode[english/1]", "encode[english/2]"], "encode[english/0-2]"),
        (["encode.validation[a/b/7]", "encode.validation[a/b/8]"], "encode.validation[a/b/7-8]"),
        (["encode[english/90]", "encode[code/0]"], "encode[english/90 … code/0]"),
    ],
)
def test_titles_of_groups(titles: list[str], expected: str) -> None:
    assert group_title(titles) == expected


def test_an_error_of_a_group_reaches_other_processes_and_names_the_step() -> None:
    error = pickle.loads(pickle.dumps(GroupError("one[a/1]", [Ended(REF)], ValueError("wrong"))))
    assert (str(error), error.ends, str(error.error)) == ("one[a/1]: wrong", [Ended(REF)], "wrong")


def test_shards_side_by_side_take_the_time_from_the_first_to_the_last() -> None:
    spans = ((10.0, 4.0), (11.0, 3.0), (14.0, 1.0))
    rows = [RunRow(f"count[a/{n}]", REF, "made", took, {}, began) for n, (began, took) in enumerate(spans)]
    assert wall_seconds(rows) == 5.0


@pytest.mark.server
def test_a_run_on_prefect_makes_the_same_and_one_without_work_is_shown_like_any_other(
    finished_project: Tokmill, on_prefect: Tokmill
) -> None:
    profile = write_project(on_prefect.folder)
    made = on_prefect.run(profile)
    found = on_prefect.run(profile)
    assert digests(on_prefect.store) == digests(finished_project.store)
    assert found["num_cached"] == found["num_tasks"] == made["num_tasks"]
    with (
        temporary_settings({PREFECT_API_URL: on_prefect.environment["PREFECT_API_URL"]}),
        get_client(sync_client=True) as client,
    ):
        first, again = (client.read_flow_run(document["run_id"]) for document in (made, found))
        assert (again.state_name, again.name, again.flow_id) == (first.state_name, first.name, first.flow_id)
        assert set(again.tags) == set(first.tags)

        def recorded() -> bool:  # the server does so later
            return set() < stages(of_run(client, first.id)) <= stages(of_run(client, again.id))

        wait_until(recorded, "the tasks were there")
        tasks = [of_run(client, run.id) for run in (first, again)]
        assert {task.state_name for task in tasks[1]} == {"Cached"}
        train = next(task for task in tasks[1] if task.name == "train")
        before = {task.id for task in tasks[1] if task.name in ("count", "balance")}
        assert {edge.id for edge in train.task_inputs["sealed"]} == before
        shown = [keys_of(client, run.id) for run in (first, again)]
        assert {"run-tiny", *(key for key in shown[0] if key and key.startswith("card"))} <= shown[1]


def stages(tasks: list[Any]) -> set[str]:
    return {task.name.partition("[")[0] for task in tasks}


def keys_of(client: SyncPrefectClient, run_id: Any) -> set[str | None]:
    """The keys of a flow run's artifacts."""
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    return {each.key for each in client.read_artifacts(artifact_filter=wanted, limit=200)}


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_task_that_takes_too_long_is_stopped(runner: str, on_prefect: Tokmill) -> None:
    profile = write_project(on_prefect.folder, num_documents=60)
    limits = ("--set", "execution.timeout=1h", "--set", "execution.timeouts.train=0.001s")
    failed = on_prefect("run", profile, "--workers", "2", "--set", f"execution.runner={runner}", *limits)
    assert failed.code == 1
    assert "train: it was stopped after 0.001s" in failed.err


@pytest.mark.parametrize("runner", ["dask", "ray"])
def test_a_runner_without_its_extra_is_named(runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runners = import_module("tokmill.flows.prefect.runners").RUNNERS
    monkeypatch.setitem(sys.modules, f"prefect_{runner}", None)
    machine = Machine.of(load_profile("smoke", [f"execution.runner={runner}"]).execution)
    fix = rf"install it with: python -m pip install 'tokmill\[{runner}\]'"
    with pytest.raises(UsageError, match=fix), runners[runner](machine):
        pass


def raised_for(error: Exception, cause: Exception) -> Exception:
    """An error as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_bug"),
    [
        (raised_for(ProfileError("profile 'tiny': no TOML"), ValueError("line 3")), False),
        (TaskError("ingest: no file matches"), False),
        (raised_for(RunError("train: too few words"), TrainingError("too few words")), False),
        (raised_for(RunError("encode[a/3]: no"), GroupError("encode[a/3]", [], TaskError("no"))), False),
        (raised_for(TaskError("a.jsonl cannot be read"), FileNotFoundError("a.jsonl")), False),
        (KeyError("a bug"), True),
        (LawError("the tokens do not add up to the text", 3), True),
        (raised_for(RunError("train: 'a bug'"), KeyError("a bug")), True),
        (raised_for(RunError("encode[a/3]: no"), GroupError("encode[a/3]", [], ZeroDivisionError())), True),
    ],
)
def test_a_mistake_is_a_sentence_in_the_page_s_log_and_a_bug_has_its_traceback(
    error: Exception, is_bug: bool
) -> None:
    keep_logs_plain()
    logger, said = logging.getLogger("prefect.flow_runs"), "Encountered exception during execution: %r"
    how = (type(error), error, None)
    record = logger.makeRecord(logger.name, logging.ERROR, __file__, 1, said, (error,), how)
    assert logger.filter(record)
    assert (record.exc_info is not None) == is_bug
    assert is_bug or record.getMessage() == str(error)


class Harm:
    """What makes a folder once it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.server
def test_a_result_that_came_with_the_store_is_replaced_unread(prefect: None, tmp_path: Path) -> None:
    """Prefect looks for no result in a store, whatever the names of its files."""
    store, results = Store.open(tmp_path / "store"), tmp_path / "store" / ".prefect"
    result = base64.encodebytes(pickle.dumps(Harm(tmp_path / "harm"))).decode()
    metadata = {"serializer": {"type": "pickle", "picklelib": "pickle"}, "prefect_version": "3.8.8"}
    results.mkdir(parents=True)
    for verb in ("write", ask().stage.verb):
        harmful = json.dumps({"metadata": metadata, "result": result})
        (results / f"{verb}-{store.fingerprint(ask())}").write_text(harmful)

    @flow(name="test-results")
    def running() -> None:
        as_task("write")(Sealed([TaskSpec("write", ask(), Machine(store.location))]))

    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: results}):
        running()
    assert (store.lookup(ask()) is not None, (tmp_path / "harm").exists()) == (True, False)
