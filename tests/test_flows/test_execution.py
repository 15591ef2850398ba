"""The executor: independent branches run side by side, and a failure keeps what was published."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from tests.test_flows.corpora import write_project
from tokmill.flows.errors import RunError
from tokmill.flows.prefect.runners import RUNNERS
from tokmill.flows.profile import load_profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Done, Job, MappedJob, Part
from tokmill.flows.run.events import RunState
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.errors import GateError
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Stage
from tokmill.tasks.store import Store

WAIT_SECONDS = 120
"""Until two tasks that should run side by side give up on each other."""


class Nothing(Params):
    """No parameters."""


class Number(Params):
    """One."""

    number: int


def stage(verb: str, run: Any, params: type[Params] = Nothing) -> Stage[Any]:
    """A stage of its own kind."""
    return Stage(verb=verb, task=verb, kind=verb, version=1, params=params, run=run)


def write(params: Params, *, out: Path, **inputs: Any) -> Outcome:
    """Publish an artifact without files of interest."""
    (out / "made").write_text(params.model_dump_json())
    return Outcome(metrics={})


def fail(params: Params, *, out: Path, **inputs: Any) -> Outcome:
    """Fail always."""
    raise ValueError("this stage always fails")


def job(verb: str, run: Any = write, **inputs: Job) -> Job:
    """A job whose inputs are other jobs."""
    return Job(stage(verb, run), verb, "test", Nothing(), inputs)


@pytest.fixture
def prefect(prefect_server: dict[str, str]) -> Iterator[None]:
    """Prefect's settings of the session's server."""
    api = {PREFECT_API_URL: prefect_server["PREFECT_API_URL"], PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(api):
        yield
    logging.getLogger("prefect").handlers.clear()


def run(
    executor_of: Store, jobs: list[Job], workers: int = 2, seen: list[Executor] | None = None
) -> tuple[Executor, Done]:
    """Run jobs in a flow; the executor is put into `seen` beforehand."""
    made: list[tuple[Executor, Done]] = []
    execution = load_profile("smoke").execution
    machine = Machine.of(execution, store=str(executor_of.root), workers=workers)

    @flow(name="test-execution")
    def running() -> None:
        with RUNNERS["threads"](machine) as tasks:
            executor = Executor(executor_of, tasks, RunState())
            if seen is not None:
                seen.append(executor)
            made.append((executor, executor.run(jobs)))

    running()
    return made[0]


@pytest.mark.server
def test_independent_branches_run_at_the_same_time(prefect: None, tmp_path: Path) -> None:
    """Each branch's last task waits for the other's, so running the branches in sequence would never end."""
    both = threading.Barrier(2)

    def meet(params: Params, *, out: Path, **inputs: Any) -> Outcome:
        both.wait(WAIT_SECONDS)
        return write(params, out=out)

    root = job("root")
    left = job("left", meet, root=root)
    right = job("right", root=root)
    further = job("further", meet, right=right)
    last = job("last", left=left, further=further)

    executor, done = run(Store.open(tmp_path), [root, left, right, further, last])

    assert [row.task for row in executor.state.rows] == ["root", "left", "right", "further", "last"]
    assert [row.how for row in executor.state.rows] == ["made"] * 5
    assert all(len(done[each]) == 1 for each in (root, left, right, further, last))


@pytest.mark.server
def test_one_worker_is_enough_for_many_branches(prefect: None, tmp_path: Path) -> None:
    root = job("root")

    def parts(ref: ArtifactRef, done: Done) -> list[Part]:
        return [Part(f"one/{number}", Number(number=number), {}) for number in range(3)]

    mapped = MappedJob(stage("mapped", write, Number), "mapped", "test", Params(), {}, of=root, parts=parts)
    empty = MappedJob(
        stage("empty", write), "empty", "test", Params(), {}, of=root, parts=lambda ref, done: []
    )
    last = job("last", mapped=mapped, empty=empty)

    executor, done = run(Store.open(tmp_path), [root, mapped, empty, last], workers=1)

    tasks = ["root", "mapped[one/0]", "mapped[one/1]", "mapped[one/2]", "last"]
    assert [row.task for row in executor.state.rows] == tasks
    assert done[empty] == []


@pytest.mark.server
def test_after_a_failure_what_is_under_way_is_published_and_nothing_is_begun(
    prefect: None, tmp_path: Path
) -> None:
    store = Store.open(tmp_path)
    failing = threading.Event()

    def first_fail(params: Params, *, out: Path, **inputs: Any) -> Outcome:
        failing.set()
        return fail(params, out=out)

    def outlast(params: Params, *, out: Path, **inputs: Any) -> Outcome:
        assert failing.wait(WAIT_SECONDS)
        return write(params, out=out)

    outlasting = job("outlasting", outlast)
    failed = job("failed", first_fail)
    never = job("never", failed=failed)

    seen: list[Executor] = []
    with pytest.raises(RunError, match=r"^failed: this stage always fails"):
        run(store, [outlasting, failed, never], seen=seen)

    state = seen[0].state
    assert [row.task for row in state.rows] == ["outlasting"]
    assert [title for title, _ in state.failures] == ["failed"]
    assert {name: group.num_tasks for name, group in state.groups.items()} == {"outlasting": 1, "failed": 1}
    assert state.not_begun == ["never"]
    assert [row["kind"] for row in store.list()] == ["outlasting"]


@pytest.mark.server
def test_an_artifact_that_is_refused_stops_the_run(prefect: None, tmp_path: Path) -> None:
    store = Store.open(tmp_path)

    def refuse(ref: ArtifactRef) -> None:
        raise GateError(f"{ref.kind} is refused")

    gated = Job(stage("gated", write), "gated", "test", Nothing(), {}, check=refuse)

    with pytest.raises(GateError, match="gated is refused"):
        run(store, [gated, job("never", gated=gated)])

    assert [row["kind"] for row in store.list()] == ["gated"]


def tiny(folder: Path, *overrides: str) -> Dag:
    """The DAG of a small project."""
    return compose(*project(folder, *overrides), Store.open(folder / "store").path)


def project(folder: Path, *overrides: str) -> tuple[Any, Any]:
    """A small project's profile and sources."""
    profile = load_profile(folder / write_project(folder, num_documents=3), overrides)
    return profile, resolve_sources(profile, Store.open(folder / "store"))


def before(found: Job) -> set[str]:
    """Return the verbs of all jobs that must be done before one."""
    return {verb for needed in found.dependencies for verb in {needed.stage.verb} | before(needed)}


def of_verb(dag: Dag, verb: str) -> Job:
    """The job of a stage."""
    (found,) = [each for each in dag.jobs if each.stage.verb == verb]
    return found


def test_encoding_and_mixture_do_not_wait_for_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dag = tiny(tmp_path, 'mix.curriculum.difficulty=["noise", "perplexity"]')

    assert "audit" not in before(of_verb(dag, "pack"))
    assert not before(of_verb(dag, "audit")) & {"encode_shard", "mix", "score_noise", "score_perplexity"}
    assert "usage" not in before(of_verb(dag, "pack"))
    assert {"audit", "usage", "pack"} <= before(of_verb(dag, "card"))


def test_encoding_waits_for_a_gate_that_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dag = tiny(tmp_path, "audit.on_failure=fail")

    assert "audit" in before(of_verb(dag, "encode_shard"))
