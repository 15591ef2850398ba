"""Shards are many to a task run of Prefect, and everything else is told of single shards."""

import pickle
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.context import get_run_context

from tests.test_flows.test_execution import Number, fail, job, prefect, stage, write
from tokmill.flows.errors import RunError
from tokmill.flows.prefect.runners import RUNNERS
from tokmill.flows.prefect.task import GroupError, divided, group_title
from tokmill.flows.profile import load_profile
from tokmill.flows.run.dag import Done, Job, MappedJob, Part
from tokmill.flows.run.events import RunState
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.machine import Machine
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params
from tokmill.tasks.store import Store

NUM_PARTS, NUM_GROUPS, BAD = 40, 14, 20  # groups of three

__all__ = ["prefect"]  # a fixture


@given(st.integers(0, 3000), st.integers(1, 64))
def test_groups_are_neighbours_and_enough_for_all_workers(num_items: int, workers: int) -> None:
    items = list(range(num_items))

    groups = list(divided(items, workers))

    assert [item for group in groups for item in group] == items
    assert len(groups) <= max(16, 4 * workers)
    assert len(groups) >= min(num_items, workers)
    assert len({len(group) for group in groups[:-1]}) <= 1
    if num_items <= 16:
        assert all(len(group) == 1 for group in groups)


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        (["ingest"], "ingest"),
        (["encode[english/3]"], "encode[english/3]"),
        (["encode[english/0]", "encode[english/1]", "encode[english/2]"], "encode[english/0-2]"),
        (["encode.validation[a/b/7]", "encode.validation[a/b/8]"], "encode.validation[a/b/7-8]"),
        (["encode[english/90]", "encode[code/0]"], "encode[english/90 … code/0]"),
    ],
)
def test_titles_of_groups(titles: list[str], expected: str) -> None:
    assert group_title(titles) == expected


def test_an_error_of_a_group_reaches_other_processes_and_names_the_step() -> None:
    ref = ArtifactRef(kind="one", name="test", fingerprint="0", content_digest="1")
    error = pickle.loads(pickle.dumps(GroupError("one[a/1]", [ref], ValueError("wrong"))))

    assert str(error) == "one[a/1]: wrong"
    assert (error.refs, str(error.error)) == ([ref], "wrong")


def mapped(run: Any, num_parts: int = NUM_PARTS) -> list[Job]:
    """A job with a task for each number, and one that takes all of them."""
    root = job("root")

    def parts(ref: ArtifactRef, done: Done) -> list[Part]:
        return [Part(f"all/{number}", Number(number=number), {}) for number in range(num_parts)]

    each = MappedJob(stage("each", run, Number), "each", "test", Params(), {}, of=root, parts=parts)
    return [root, each, job("last", each=each)]


def run_on_prefect(store: Path, jobs: list[Job], runner: Any = "threads") -> tuple[Any, dict[str, str]]:
    """Run jobs; return the rows or the error, and the name of each task run with its state."""
    opened = Store.open(store)
    machine = Machine.of(load_profile("smoke").execution, store=str(store), workers=2)
    rows: list[Any] = []
    ids: list[Any] = []
    submitted: list[dict[str, UUID]] = []

    @flow(name="test-groups")
    def running() -> None:
        ids.append(get_run_context().flow_run.id)  # type: ignore[union-attr]
        with RUNNERS[runner](machine) as tasks:
            submitted.append(tasks.task_runs)
            executor = Executor(opened, tasks, RunState())
            executor.run(jobs)
            rows.extend(executor.state.rows)

    outcome: Any = rows
    try:
        running()
    except RunError as error:
        outcome = error
    return outcome, final_states(ids, set(submitted[0].values()))


def final_states(flow_runs: list[Any], task_runs: set[UUID]) -> dict[str, str]:
    """Return the states of task runs by name; the server takes a while to know how they ended."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=flow_runs))
    with get_client(sync_client=True) as client:
        while True:
            found = client.read_task_runs(flow_run_filter=wanted, limit=200)
            ended = {each.id for each in found if each.state is not None and each.state.is_final()}
            if task_runs <= ended:
                return {each.name: str(each.state_name) for each in found}
            time.sleep(0.1)


@pytest.mark.server
def test_a_failed_shard_is_named_and_what_was_made_is_kept(prefect: None, tmp_path: Path) -> None:
    def run(params: Params, *, out: Path) -> Outcome:
        return (fail if params.number == BAD else write)(params, out=out)  # type: ignore[attr-defined]

    error, states = run_on_prefect(tmp_path, mapped(run))

    assert str(error) == f"each[all/{BAD}]: this stage always fails"
    assert error.task == f"each[all/{BAD}]"
    assert len(states) == 1 + NUM_GROUPS
    assert [name for name, state in states.items() if state == "Failed"] == ["each[all/18-20]"]

    rows, states = run_on_prefect(tmp_path, mapped(write))

    assert [row.task for row in rows if row.how == "made"] == [f"each[all/{BAD}]", "last"]
    assert sum(state == "Cached" for state in states.values()) == 1 + NUM_GROUPS - 1
    assert states["each[all/18-20]"] == "Completed"

    rows, states = run_on_prefect(tmp_path, mapped(write))

    assert {row.how for row in rows} == {"cached"}
    assert set(states.values()) == {"Cached"}
    assert len(rows) == NUM_PARTS + 2


@pytest.mark.server
def test_rows_are_those_of_single_shards_in_order(prefect: None, tmp_path: Path) -> None:
    rows, states = run_on_prefect(tmp_path, mapped(write))

    assert [row.task for row in rows] == ["root", *(f"each[all/{n}]" for n in range(NUM_PARTS)), "last"]
    assert {row.how for row in rows} == {"made"}
    assert all(row.seconds > 0 for row in rows)
    assert set(states) >= {"root", "last", "each[all/0-2]", "each[all/39]"}
