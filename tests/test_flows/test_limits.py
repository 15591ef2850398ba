"""Faults that pass are tried again, and a task that takes too long is stopped; with Prefect and without."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import Noting
from tests.test_flows.test_direct import of_one, run_states
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.profile import load_profile
from tokmill.flows.profile.sections import StageName
from tokmill.flows.run.composition import compose
from tokmill.flows.run.direct import run_directly
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine, num_bytes, num_seconds
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid, compose_sweep
from tokmill.tasks.core.errors import GateError, StoreError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.core.stage import Outcome, Params
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.params import SweepParams
from tokmill.tokenizer.core.stopping import StopRequested, request_stop


def failing(times: int, error: Callable[[], BaseException]) -> tuple[Any, list[int]]:
    """A stage that fails some times, and the list of its attempts."""
    attempts: list[int] = []

    def run(params: Params, *, out: Path) -> Outcome:
        attempts.append(len(attempts))
        assert not list(out.iterdir())  # of an earlier attempt nothing is left
        (out / "half").write_text("half")
        if len(attempts) <= times:
            raise error()
        return Outcome(metrics={})

    return run, attempts


def run_one(run: Any, store: Path, *overrides: str, workers: int = 1) -> Noting:
    """Run one task without Prefect."""
    profile, told = load_profile("smoke", ["execution.retry_pause=0.01", *overrides]), Noting()
    machine = Machine.of(profile.execution, store=str(store), workers=workers)
    run_directly(profile, of_one(run), machine, RunState(told))
    return told


def of_a_device() -> OSError:
    """What a real device says: the memory of a process cannot be read at its beginning."""
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            memory.read(1)
    except OSError as error:
        return error
    raise AssertionError


def test_a_fault_that_passes_is_tried_again_and_told(tmp_path: Path) -> None:
    run, attempts = failing(2, of_a_device)

    told = run_one(run, tmp_path)

    assert attempts == [0, 1, 2]
    assert run_states(tmp_path) == [("completed", "")]
    assert len(told.notes) == 2
    assert all("Input/output error" in note for note in told.notes)


def test_a_fault_that_does_not_pass_in_time_ends_the_run(tmp_path: Path) -> None:
    run, attempts = failing(10, of_a_device)

    with pytest.raises(RunError, match="Input/output error"):
        run_one(run, tmp_path, "execution.retries=3")

    assert len(attempts) == 4


@pytest.mark.parametrize(
    "error",
    [
        lambda: ValueError("a wrong parameter"),
        lambda: GateError("the gate failed"),
        MemoryError,
        lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        lambda: FileNotFoundError(errno.ENOENT, "gone"),
    ],
)
def test_what_would_come_again_is_not_tried_again(error: Callable[[], Exception], tmp_path: Path) -> None:
    run, attempts = failing(1, error)

    with pytest.raises(RunError):
        run_one(run, tmp_path)

    assert attempts == [0]


def test_a_fault_is_recognized_below_what_it_caused() -> None:
    wrapped = StoreError("not published")
    wrapped.__cause__ = ConnectionResetError()

    assert may_pass(wrapped)
    assert not may_pass(StoreError("damaged"))
    gate = GateError("failed")
    gate.__cause__ = TimeoutError()
    assert not may_pass(gate)


def test_a_stop_ends_the_wait_for_the_next_attempt(tmp_path: Path) -> None:
    def error() -> OSError:
        request_stop()
        return of_a_device()

    run, attempts = failing(1, error)

    with pytest.raises(StopRequested):
        run_one(run, tmp_path, "execution.retry_pause=3600")

    assert attempts == [0]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stage_that_takes_too_long_is_stopped(workers: str, tokmill: Tokmill) -> None:
    profile = write_project(tokmill.folder, num_documents=60)

    failed = tokmill("run", profile, "--workers", workers, "--set", "execution.timeouts.train=0.001s")

    assert failed.code == 1
    assert "train: it was stopped after 0.001s" in failed.err
    assert list((tokmill.store / "counts").iterdir())
    assert not (tokmill.store / "tokenizer").exists()
    document = tokmill.run(profile, "--set", "execution.timeouts.train=1h")
    assert document["num_cached"] > 0


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_task_of_prefect_is_stopped_too(runner: str, on_prefect: Tokmill) -> None:
    profile = write_project(on_prefect.folder, num_documents=60)

    failed = on_prefect(
        *("run", profile, "--workers", "2", "--set", f"execution.runner={runner}"),
        *("--set", "execution.timeout=1h", "--set", "execution.timeouts.train=0.001s"),
    )

    assert failed.code == 1
    assert "train: it was stopped after 0.001s" in failed.err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_durations(text: str, seconds: float) -> None:
    assert num_seconds(text) == seconds


@pytest.mark.parametrize(
    ("override", "problem"),
    [("execution.timeout=2", "timeout"), ("execution.timeouts.trian='2h'", "trian")],
)
def test_a_wrong_limit_is_refused(override: str, problem: str) -> None:
    with pytest.raises(ProfileError, match=problem):
        load_profile("smoke", [override])


def test_every_stage_of_a_run_and_a_sweep_can_be_limited(tmp_path: Path) -> None:
    profile, store = load_profile("smoke"), Store.open(tmp_path)
    sources = resolve_sources(profile, store)
    dags = [
        compose(profile, sources, store.path),
        compose_sweep(profile, Grid(), SweepParams(), sources, store.path),
    ]

    named = {job.stage.task for dag in dags for job in dag.jobs}

    assert named <= set(StageName.__args__)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_training_takes_no_more_memory_than_its_plan_says(
    prefect_server: dict[str, str], tmp_path: Path
) -> None:
    tokmill = Tokmill(tmp_path, prefect_server)
    profile = write_project(tmp_path)
    tokmill.run(profile, "--until", "counts", "--until", "balance")

    (said,) = re.findall(r"needs at most about (\S+ \S+) of memory", tokmill("plan", profile).out)
    tokmill.run(profile, "--until", "tokenizer")

    store = Store.open(tokmill.store)
    peak = store.record(store.resolve("tokenizer/tiny")).timings.peak_bytes
    assert peak is not None
    assert 0.5 * num_bytes(said) < peak <= num_bytes(said)
