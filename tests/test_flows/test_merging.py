"""Counts of many shards: merged in a tree by tasks of their own, to what adding them up at once gives."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.effort import EVERYTHING
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run.composer import Composer
from tokmill.flows.run.dag import Dag
from tokmill.flows.run.events import RunState
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.planning import plan_dag
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.tasks import Ended, LocalTasks, TaskSpec, perform
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.count.merging import FAN_IN
from tokmill.tasks.count.stage import COUNT, CountParams
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.store import Store

SHARD_BYTES = 64 << 10
PROFILE = """
name = "many"
[sources.large]
files = ["large/*.txt"]
format = "lines"
[sources.small]
files = ["small/*.txt"]
format = "lines"
[ingest]
shard_bytes = 65536
"""


def write_shards(folder: Path, num_shards: int) -> Profile:
    """Write a source of that many shards, each of one document, and one of three; return the profile."""
    for source, number in (("large", num_shards), ("small", 3)):
        (folder / source).mkdir(parents=True)
        with (folder / source / "text.txt").open("w", encoding="utf-8") as file:
            for index in range(number):
                words = f"word{index % 97} number{index} {source} "
                file.write(words * (SHARD_BYTES * 3 // 4 // len(words) + 1) + "\n")
    (folder / "many.toml").write_text(PROFILE, encoding="utf-8")
    return load_profile(folder / "many.toml")


def counting(profile: Profile, store: Store) -> Dag:
    """The jobs that ingest and count."""
    composer = Composer(profile, resolve_sources(profile, store), store.path)
    corpus = composer.one(INGEST, profile.ingest_params(), {"files": composer.sources.files})
    counts = composer.counted(corpus, CountParams())
    return Dag(composer.jobs, {"corpus": corpus, "counts": counts})


class ProcessTasks(LocalTasks):
    """Tasks in processes of their own, without Prefect."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        super().__init__(1)
        self._futures: deque[tuple[str, Future[Ended]]] = deque()
        self._processes = pool

    def submit(self, specs: Sequence[TaskSpec]) -> None:
        self._futures += [(spec.title, self._processes.submit(perform, spec)) for spec in specs]

    def wait(self) -> tuple[str, Ended]:
        title, future = self._futures.popleft()
        return title, future.result()


def run(dag: Dag, store: Store, tasks: Any) -> tuple[dict[str, ArtifactRef], Mapping[str, Any]]:
    """Execute a DAG; return its artifacts, and how each task got its own."""
    executor = Executor(store, tasks, RunState())
    made = dag.artifacts(executor.run(dag.jobs))
    refs = {kind: ref for kind, ref in made.items() if isinstance(ref, ArtifactRef)}
    return refs, {row.task: row for row in executor.state.rows}


@pytest.fixture
def threads() -> Iterator[LocalTasks]:
    """Two threads."""
    with LocalTasks(2) as tasks:
        yield tasks


def merges(rows: Mapping[str, Any]) -> list[str]:
    """The labels of the merges."""
    return [task.removeprefix("merge_counts[")[:-1] for task in rows if task.startswith("merge_counts")]


def added_at_once(store: Store, refs: Mapping[str, ArtifactRef], rows: Mapping[str, Any]) -> ArtifactRef:
    """Add all counted shards up in one task."""
    shards = [row.ref for task, row in rows.items() if task.startswith("count[")]
    inputs = {"corpus": refs["corpus"], "shards": shards}
    return store.realize(Request(COUNT, "at-once", CountParams(), inputs)).ref


@pytest.mark.parametrize(
    ("num_shards", "expected"),
    [
        (FAN_IN, []),
        (FAN_IN + 1, ["large/0-31"]),
        pytest.param(2 * FAN_IN + 2, ["large/0-31", "large/32-63", "large/64-65"], marks=pytest.mark.slow),
    ],
)
def test_only_a_source_of_many_shards_is_merged(
    tmp_path: Path, threads: LocalTasks, num_shards: int, expected: list[str]
) -> None:
    profile, store = write_shards(tmp_path, num_shards), Store.open(tmp_path / "store")
    refs, rows = run(counting(profile, store), store, threads)

    assert merges(rows) == expected
    assert len(rows) == num_shards + 3 + len(expected) + 2
    assert added_at_once(store, refs, rows).content_digest == refs["counts"].content_digest


def test_a_plan_knows_the_merges_once_the_corpus_is_there(tmp_path: Path, threads: LocalTasks) -> None:
    profile, store = write_shards(tmp_path, FAN_IN + 1), Store.open(tmp_path / "store")
    assert [row.task for row in plan_dag(counting(profile, store), store)] == ["ingest", "count[…]", "count"]

    ingest = Dag(counting(profile, store).jobs[:1], {})
    run(ingest, store, threads)
    planned = plan_dag(counting(profile, store), store)
    assert [row.task for row in planned if row.task.startswith("merge")] == ["merge_counts[large/0-31]"]

    run(counting(profile, store), store, threads)
    assert {row.action for row in plan_dag(counting(profile, store), store)} == {"cached"}


def test_a_shard_more_leaves_full_merges_alone(tmp_path: Path, threads: LocalTasks) -> None:
    store = Store.open(tmp_path / "store")
    run(counting(write_shards(tmp_path / "before", 2 * FAN_IN + 2), store), store, threads)
    more = counting(write_shards(tmp_path / "after", 2 * FAN_IN + 3), store)
    made = [row.task for row in plan_dag(more, store) if row.action == "run"]
    assert made == ["ingest", "count[…]", "count"]

    _, rows = run(more, store, threads)
    made = [task for task, row in rows.items() if row.how == "made"]
    assert made == ["ingest", f"count[large/{2 * FAN_IN + 2}]", "merge_counts[large/64-66]", "count"]


@pytest.mark.slow
def test_two_levels_of_merges_give_what_adding_up_at_once_gives(tmp_path: Path, threads: LocalTasks) -> None:
    profile, store = write_shards(tmp_path, FAN_IN**2 + 1), Store.open(tmp_path / "store")
    refs, rows = run(counting(profile, store), store, threads)

    assert len(merges(rows)) == FAN_IN + 1
    assert merges(rows)[-1] == f"large/0-{FAN_IN**2 - 1}"
    assert added_at_once(store, refs, rows).content_digest == refs["counts"].content_digest


@pytest.mark.slow
def test_processes_merge_to_what_threads_merge_to(tmp_path: Path, threads: LocalTasks) -> None:
    """One level of merges; with TOKMILL_EVERYTHING two."""
    profile = write_shards(tmp_path, FAN_IN**2 + 1 if EVERYTHING else FAN_IN + 1)
    stores = [Store.open(tmp_path / name) for name in ("threads", "processes")]
    refs, rows = run(counting(profile, stores[0]), stores[0], threads)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        again, others = run(counting(profile, stores[1]), stores[1], ProcessTasks(pool))

    assert refs == again
    assert {task: row.ref for task, row in rows.items()} == {task: row.ref for task, row in others.items()}
    assert len(merges(others)) == (FAN_IN + 1 if EVERYTHING else 1)
