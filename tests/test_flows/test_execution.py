"""The executor: order, failures, retries, limits, interruptions; and the DAG that it is given.

Without Prefect, on threads of this process; `test_prefect_tasks.py` has what Prefect does with tasks.
"""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import write_project
from tests.test_flows.jobs import Nothing, fail, interrupt, job, mapped, run_one, run_states, stage, write
from tokmill.flows.errors import ProfileError, RunError, UsageError
from tokmill.flows.profile import Execution, load_profile
from tokmill.flows.profile.sections import StageName
from tokmill.flows.results import RunRow
from tokmill.flows.run.composer import Composer
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Job
from tokmill.flows.run.events import RunState
from tokmill.flows.run.executor import Executor
from tokmill.flows.run.machine import Machine, num_bytes, num_seconds
from tokmill.flows.run.planning import plan_dag
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid, compose_sweep
from tokmill.flows.run.tasks import LocalTasks
from tokmill.tasks.core import context
from tokmill.tasks.core.context import quarter_of_the_ram
from tokmill.tasks.core.errors import GateError, StoreError
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Request
from tokmill.tasks.count import merging
from tokmill.tasks.count.merging import FAN_IN
from tokmill.tasks.count.stage import COUNT, CountParams
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.recommendation import SweepParams
from tokmill.tokenizer.core.stopping import StopRequested, raise_if_stopped, request_stop

WAIT_SECONDS = 120
"""Until two tasks that should run side by side give up on each other."""


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    """On two threads, with an empty store."""
    with LocalTasks(2) as tasks:
        yield Executor(Store.open(tmp_path / "store"), tasks, RunState())


def test_independent_branches_run_at_the_same_time(executor: Executor) -> None:
    """Each branch's last task waits for the other's, so running the branches in sequence would never end."""
    both = threading.Barrier(2)

    def meet(params: Params, *, out: Path, **inputs: Any) -> Outcome:
        both.wait(WAIT_SECONDS)
        return write(params, out=out)

    root = job("root")
    left, right = job("left", meet, root=root), job("right", root=root)
    further = job("further", meet, right=right)
    done = executor.run([root, left, right, further, job("last", left=left, further=further)])
    assert [row.task for row in executor.state.rows] == ["root", "left", "right", "further", "last"]
    assert {row.how for row in executor.state.rows} == {"made"}
    assert len(done) == 5


def test_one_worker_is_enough_for_many_branches_in_the_calling_thread(tmp_path: Path) -> None:
    seen: list[threading.Thread] = []

    def run(params: Params, *, out: Path) -> Outcome:
        seen.append(threading.current_thread())
        return Outcome(metrics={})

    root = job("root", run)
    some, none = mapped(write, 3, root), mapped(write, 0, root)
    one = Executor(Store.open(tmp_path), LocalTasks(1), RunState())
    done = one.run([root, some, none, job("last", mapped=some, empty=none)])
    assert [row.task for row in one.state.rows] == ["root", *(f"each[all/{n}]" for n in range(3)), "last"]
    assert (done[none], seen) == ([], [threading.current_thread()])


def test_the_largest_parts_begin_first_and_results_are_in_the_order_of_parts(tmp_path: Path) -> None:
    begun: list[int] = []

    def run(params: Any, *, out: Path, **inputs: Any) -> Outcome:
        begun.append(params.number)
        return write(params, out=out)

    root = job("root")
    with LocalTasks(1) as tasks:
        executor = Executor(Store.open(tmp_path), tasks, RunState())
        executor.run([root, mapped(run, 4, root, sizes=[2, 3, 1, 3])])
    assert begun == [1, 3, 0, 2]
    assert [row.task for row in executor.state.rows[1:]] == [f"each[all/{number}]" for number in range(4)]


def test_after_a_failure_what_is_under_way_is_published_and_nothing_is_begun(executor: Executor) -> None:
    until = time.monotonic() + WAIT_SECONDS

    def outlast(params: Params, *, out: Path, **inputs: Any) -> Outcome:
        while not executor.state.failures:
            assert time.monotonic() < until
            time.sleep(0.01)
        return write(params, out=out)

    failed, outlasting = job("failed", fail), job("outlasting", outlast)
    after = [job("never", failed=failed), job("later", outlasting=outlasting)]
    with pytest.raises(RunError, match=r"^failed: this stage always fails"):
        executor.run([outlasting, failed, *after])
    state = executor.state
    assert [row.task for row in state.rows] == ["outlasting"]
    assert [title for title, _ in state.failures] == ["failed"]
    assert {name: group.num_tasks for name, group in state.groups.items()} == {"outlasting": 1, "failed": 1}
    assert state.not_begun == ["never", "later"]

    def refuse(ref: ArtifactRef) -> None:
        raise GateError(f"{ref.kind} is refused")

    gated = Job(stage("gated", write), "gated", "test", Nothing(), {}, check=refuse)
    with pytest.raises(GateError, match="gated is refused"):
        Executor(executor.store, executor.tasks, RunState()).run([gated, job("never", gated=gated)])
    assert {row["kind"] for row in executor.store.list()} == {"outlasting", "gated"}  # it stays


FAILED, CANCELLED = ("failed", "one: this stage always fails"), ("cancelled", "KeyboardInterrupt")


@pytest.mark.parametrize(
    ("workers", "run", "raised", "state"),
    [(1, fail, RunError, FAILED), (2, fail, RunError, FAILED), (1, interrupt, KeyboardInterrupt, CANCELLED)],
)
def test_a_run_that_does_not_complete_is_recorded_with_the_reason(
    tmp_path: Path, workers: int, run: Any, raised: type[BaseException], state: tuple[str, str]
) -> None:
    with pytest.raises(raised, match=state[1] if raised is RunError else None):
        run_one(run, tmp_path, workers=workers)
    assert run_states(tmp_path) == [state]


def test_an_interrupted_run_has_its_threads_stop_and_work_goes_on_afterwards(tmp_path: Path) -> None:
    stopped = threading.Event()

    def run(params: Params, *, out: Path) -> Outcome:
        try:
            time.sleep(0.1)  # by then the pool has noted this thread, which it is still starting
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            while True:
                raise_if_stopped()
                time.sleep(0.01)
        finally:
            stopped.set()

    with pytest.raises(KeyboardInterrupt):
        run_one(run, tmp_path, workers=2)
    assert run_states(tmp_path) == [("cancelled", "KeyboardInterrupt")]
    assert stopped.wait(WAIT_SECONDS)
    raise_if_stopped()


def device_fault() -> OSError:
    """What a real device says: the memory of a process cannot be read at its beginning."""
    with (
        pytest.raises(OSError, match="Input/output") as caught,
        Path("/proc/self/mem").open("rb", buffering=0) as memory,
    ):
        memory.read(1)
    return caught.value


def published(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def stopping() -> OSError:
    request_stop()
    return device_fault()


@pytest.mark.parametrize(
    ("error", "failures", "settings", "raised", "num_attempts"),
    [
        (device_fault, 2, (), None, 3),
        (device_fault, 10, ("execution.retries=3",), RunError, 4),
        (stopping, 1, ("execution.retry_pause=3600",), StopRequested, 1),  # which ends the wait
        (lambda: published(StoreError("not published"), ConnectionResetError()), 1, (), None, 2),
        *((lambda error=error: error, 1, (), RunError, 1) for error in (
            ValueError("a wrong parameter"), MemoryError(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            FileNotFoundError(errno.ENOENT, "gone"), StoreError("damaged"),
            published(GateError("failed"), TimeoutError()))),
    ],
)  # fmt: skip
def test_a_fault_that_passes_is_tried_again_and_one_that_does_not_ends_the_run(
    tmp_path: Path, error: Any, failures: int, settings: tuple[str, ...], raised: Any, num_attempts: int
) -> None:
    attempts: list[int] = []

    def run(params: Params, *, out: Path) -> Outcome:
        attempts.append(len(attempts))
        assert not list(out.iterdir())  # of an earlier attempt nothing is left
        (out / "half").write_text("half")
        if len(attempts) <= failures:
            raise error()
        return Outcome(metrics={})

    with pytest.raises(raised) if raised else nullcontext():
        told = run_one(run, tmp_path, *settings)
        assert len(told.notes) == failures
        assert error is not device_fault or all("Input/output error" in note for note in told.notes)
        assert run_states(tmp_path) == [("completed", "")]
    assert len(attempts) == num_attempts


def test_a_stage_that_takes_too_long_is_stopped(tokmill: Tokmill) -> None:
    profile = write_project(tokmill.folder, num_documents=60)
    limit = ("--set", "execution.timeouts.train=0.001s", "--until", "tokenizer")
    failed = tokmill("run", profile, "--workers", "2", *limit)
    assert (failed.code, "train: it was stopped after 0.001s" in failed.err) == (1, True)
    assert [path.name for path in tokmill.store.iterdir() if path.name in {"counts", "tokenizer"}] == [
        "counts"
    ]


def test_durations_and_sizes_are_numbers_with_a_unit() -> None:
    seconds = {"90s": 90, "1.5m": 90, "2h": 7200, "1d": 86400}
    sizes = {"4GB": 4 * 10**9, "512MiB": 512 << 20, "1.5 KB": 1500, "2TiB": 2 << 40}
    assert {text: num_seconds(text) for text in seconds} == seconds
    assert {text: num_bytes(text) for text in sizes} == sizes
    for text in ("4", "4 gigs", "-1GB", "GB", "4GB "):
        with pytest.raises(UsageError, match=f"memory='{text}' must be a number and a unit.*e.g. 4GB"):
            num_bytes(text)


def test_the_nearest_word_on_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Option, then environment, then profile."""
    monkeypatch.delenv("TOKMILL_MEMORY", raising=False)
    profile = Execution(memory="3KB")
    memory = [Machine.of(Execution()).memory_bytes, Machine.of(profile).memory_bytes]
    monkeypatch.setenv("TOKMILL_MEMORY", "2KB")
    memory += [Machine.of(profile).memory_bytes, Machine.of(profile, memory="1KB").memory_bytes]
    assert memory == [quarter_of_the_ram(), 3000, 2000, 1000]


def test_processes_are_for_much_text_on_many_cores_that_may_be_used(tmp_path, monkeypatch) -> None:
    """Eight by affinity, and by the share of their time that a control group may have."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(context, "_CONTROL_GROUP", tmp_path)
    found = []
    for share in ("max 100000", "550000 100000", "400000 100000", "50000 100000", "0 100000", "max"):
        (tmp_path / "cpu.max").write_text(share)
        machine = Machine.of(Execution())
        found.append((machine.workers, machine.needs_processes(1 << 30), machine.needs_processes(1 << 20)))
    few = [(4, False, False), (1, False, False), (1, False, False)]
    assert found == [(8, True, False), (6, True, False), *few, (8, True, False)]
    assert not Machine.of(Execution(runner="threads"), workers=8).needs_processes(1 << 30)


def test_every_stage_of_a_run_and_a_sweep_can_be_limited_and_no_other(tmp_path: Path) -> None:
    profile, store = load_profile("smoke"), Store.open(tmp_path)
    sources = resolve_sources(profile, store)
    sweep = compose_sweep(profile, Grid(), SweepParams(), sources, store.path)
    jobs = [*compose(profile, sources, store.path).jobs, *sweep.jobs]
    assert {each.stage.task for each in jobs} <= set(StageName.__args__)  # type: ignore[attr-defined]
    for override in ("execution.timeout=2", "execution.timeouts.trian='2h'"):
        with pytest.raises(ProfileError, match=r"timeout|trian"):
            load_profile("smoke", [override])


def test_encoding_and_mixture_wait_for_the_audit_only_if_its_gate_stops_the_run(tmp_path: Path) -> None:
    path, store = tmp_path / write_project(tmp_path, num_documents=3), Store.open(tmp_path / "store")

    def before(found: Job) -> set[str]:
        return {verb for each in found.dependencies for verb in {each.stage.verb} | before(each)}

    def needed_by(verb: str, override: str) -> set[str]:
        profile = load_profile(path, [override])
        dag = compose(profile, resolve_sources(profile, store), store.path)
        (found,) = [each for each in dag.jobs if each.stage.verb == verb]
        return before(found)

    scored = 'mix.curriculum.difficulty=["noise", "perplexity"]'
    assert not {"audit", "usage"} & needed_by("pack", scored)
    assert not {"encode_shard", "mix", "score_noise", "score_perplexity"} & needed_by("audit", scored)
    assert {"audit", "usage", "pack"} <= needed_by("card", scored)
    assert "audit" in needed_by("encode_shard", "audit.on_failure=fail")


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


def counting(folder: Path, num_shards: int, store: Store) -> Dag:
    """Write a source of that many shards of one document, and one of three; return the jobs that count."""
    for source, number in (("large", num_shards), ("small", 3)):
        (folder / source).mkdir(parents=True)
        with (folder / source / "text.txt").open("w", encoding="utf-8") as file:
            for index in range(number):
                words = f"word{index % 97} number{index} {source} "
                file.write(words * (SHARD_BYTES * 3 // 4 // len(words) + 1) + "\n")
    (folder / "many.toml").write_text(PROFILE, encoding="utf-8")
    profile = load_profile(folder / "many.toml")
    composer = Composer(profile, resolve_sources(profile, store), store.path)
    corpus = composer.one(INGEST, profile.ingest_params(), {"files": composer.sources.files})
    counts = composer.counted(corpus, CountParams())
    return Dag(composer.jobs, {"corpus": corpus, "counts": counts})


def counted(dag: Dag, store: Store) -> dict[str, RunRow]:
    """Count, and compare with one task for all; return how each task got its artifact."""
    state = RunState()
    with LocalTasks(2) as tasks:
        done = dag.artifacts(Executor(store, tasks, state).run(dag.jobs))
    rows, counts = {row.task: row for row in state.rows}, done["counts"]
    inputs = {"corpus": done["corpus"], "shards": [rows[each].ref for each in rows if each[:6] == "count["]}
    at_once = store.realize(Request(COUNT, "at-once", CountParams(), inputs)).ref
    assert isinstance(counts, ArtifactRef)
    assert at_once.content_digest == counts.content_digest
    return rows


def test_only_a_source_of_many_shards_is_merged_and_a_shard_more_leaves_full_merges_alone(tmp_path) -> None:
    store, made = Store.open(tmp_path / "store"), []
    for number in range(3):
        dag = counting(tmp_path / f"{number}", FAN_IN + number, store)
        planned = [row.task for row in plan_dag(dag, store) if row.action != "cached"]
        assert planned == ["ingest", "count[…]", "count"]
        made.append([task for task, row in counted(dag, store).items() if row.how == "made"])
        assert {row.action for row in plan_dag(dag, store)} == {"cached"}
    assert not [task for task in made[0] if task.startswith("merge")]
    assert made[1:] == [
        ["ingest", "count[large/32]", "merge_counts[large/0-31]", "count"],
        ["ingest", "count[large/33]", "merge_counts[large/32-33]", "count"],
    ]


def test_two_levels_of_merges_give_what_adding_up_at_once_gives(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 3)  # as with 1,025 shards
    store = Store.open(tmp_path / "store")
    rows = counted(counting(tmp_path / "texts", 10, store), store)
    merges = [task for task in rows if task.startswith("merge")]
    assert merges == [f"merge_counts[large/{span}]" for span in ("0-2", "3-5", "6-8", "0-8")]
