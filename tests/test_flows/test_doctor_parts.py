"""`tokmill doctor` without a server: installation, machine, speed, store; each finding has its fix."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import create_autospec
from uuid import uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType

import tokmill
from tests.object_server import Bucket
from tests.test_flows.commands import clean_environment
from tokmill.flows.doctor.report import Part, look_at_installation, out_of_bounds, required
from tokmill.flows.doctor.speed import LOGGED, Measured, documents, look_at_speed, measure
from tokmill.flows.doctor.stores import look_at_machine, look_at_store
from tokmill.flows.prefect.orphans import dead_runs, worker_name
from tokmill.tasks.store import Store
from tokmill.tasks.store.disk import ProcessLock
from tokmill.tasks.store.leases import Process


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokmill.Store:
    """A store with a few artifacts."""
    made = tokmill.Store(tmp_path_factory.mktemp("doctor") / "store")
    tokmill.train(["some text", "of a few words"] * 9, vocab_size=265, store=made)
    return made


def said(part: Part) -> str:
    """All that a part found, with a fix for each."""
    assert all(finding.what and finding.fix for finding in part.findings)
    return "\n".join(finding.text for finding in part.findings)


def test_without_a_server_a_sound_installation_has_no_failure(store: tokmill.Store, tmp_path: Path) -> None:
    environment = clean_environment(HOME=str(tmp_path))
    command = [sys.executable, "-m", "tokmill", "doctor", "--no-speed", "--json", "--store", store.location]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    told = json.loads(done.stdout)
    assert (done.returncode, [one for one in told["findings"] if one["fails"]]) == (0, []), done.stderr
    assert all(one["fix"] for one in told["findings"])
    assert told["server"] == {"api": None}
    assert told["store"]["num_artifacts"] == len(store.artifacts())
    assert told["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert set(told["installation"]["packages"]) == {requirement.name for requirement in required()}
    assert not (tmp_path / ".prefect").exists()


def test_a_store_that_cannot_be_is_a_failure_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    command = [sys.executable, "-m", "tokmill", "doctor", "--no-speed", "--store", "file"]
    environment = clean_environment(HOME=str(tmp_path))
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "is a file; a store is a folder; name another one" in done.stdout


def test_versions_out_of_bounds_and_slow_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = out_of_bounds(["numpy<1"])
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")

    assert found.fix == "python -m pip install 'numpy<1'"
    assert "NUMBA_DISABLE_JIT" in said(look_at_installation())


def test_a_kernel_cache_that_does_not_last_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKMILL_KERNEL_CACHE", str(tmp_path / "cache"))
    assert look_at_machine().figures["kernel_cache"]["folder"] == str(tmp_path / "cache")

    (tmp_path / "taken").write_text("x")
    monkeypatch.setenv("TOKMILL_KERNEL_CACHE", str(tmp_path / "taken" / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = look_at_machine()

    assert found.figures["kernel_cache"]["lasts"] or "TOKMILL_KERNEL_CACHE" in said(found)


def test_speed_is_said_as_a_ratio_to_the_log() -> None:
    half = Measured({name: rate * 0.4 for name, rate in LOGGED.items()}, 1.0)

    slow, equal = look_at_speed(half), look_at_speed(Measured(LOGGED, 1.0))

    assert {figure["ratio"] for name, figure in slow.figures.items() if name in LOGGED} == {0.4}
    assert "more than twice as long" in said(slow)
    assert not equal.findings


@pytest.mark.slow
def test_the_measured_work_is_the_same_every_time_and_takes_seconds() -> None:
    assert documents() == documents()

    measured = measure()

    assert set(measured.rates) == set(LOGGED)
    assert all(rate > 0 for rate in measured.rates.values())


def test_leftovers_damage_and_locks_of_a_store_are_found(tmp_path: Path) -> None:
    store = tokmill.Store(tmp_path / "store")
    tok = tokmill.train(["some text", "of a few words"] * 9, vocab_size=265, store=store)
    assert tok.artifact is not None
    (tok.artifact.path / "tokmill.json").write_text("{}")
    with pytest.raises(Exception, match="tokenizer"):
        tok.artifact.open()
    tokmill.train(["some text", "of a few words"] * 9, vocab_size=265, store=store)  # sets it aside

    lock = ProcessLock(store.layout.locks / "tokenizer-test.lock")
    assert lock.try_acquire()
    try:
        found = look_at_store(store.location)
    finally:
        lock.release()

    assert (found.figures["num_damaged"], found.figures["num_locks"]) == (1, 1)
    assert "set aside as damaged" in said(found)
    assert not any(finding.fails for finding in found.findings)


def test_a_store_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    found = look_at_store(str(tmp_path / "nothing"))

    assert not found.findings
    assert not (tmp_path / "nothing").exists()


@pytest.mark.objects
def test_the_rights_in_a_bucket_are_tried_and_nothing_stays(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = look_at_store(f"{bucket.url}/team")

    assert found.figures["rights"] == dict.fromkeys(
        ("list", "create", "create only once", "read", "remove"), True
    )
    assert not found.findings
    assert not list(bucket.keys())


@pytest.mark.objects
def test_credentials_that_may_only_read_are_told_apart(bucket: Bucket) -> None:
    bucket.fault("answer", method="PUT", status=403, times=None)

    found = look_at_store(f"{bucket.url}/team")

    assert (found.figures["rights"]["list"], found.figures["rights"]["create"]) == (True, False)
    assert "may not be written to" in said(found)
    assert not any(finding.fails for finding in found.findings)


@pytest.mark.objects
def test_a_bucket_that_is_not_there_is_a_failure(bucket: Bucket) -> None:
    found = look_at_store(f"{bucket.url}-of-nobody/team")

    assert any(finding.fails for finding in found.findings)
    assert "credentials" in said(found)


OLD, NEW = timedelta(minutes=1), timedelta(0)
OWN = worker_name(Process.own())
ENDED = worker_name(Process.own().model_copy(update={"began": 1}))


@pytest.mark.parametrize(
    ("state", "run_count", "since", "worker", "is_dead"),
    [
        ("RUNNING", 1, NEW, "", True),  # the store has it as crashed
        ("RUNNING", 2, NEW, "", False),  # a retry that the store does not know yet
        ("PENDING", 1, NEW, "", False),
        ("RUNNING", 2, OLD, ENDED, True),
        ("PENDING", 1, NEW, ENDED, False),  # a retry, which still names the worker of the attempt before
        ("RUNNING", 2, OLD, OWN, False),
        ("RUNNING", 2, OLD, "ProcessWorker 1", False),
    ],
    ids=lambda value: "" if value in (ENDED, OWN) else None,  # each of pytest's processes has other names
)
def test_a_run_is_dead_if_its_process_is_and_not_while_it_is_retried(
    tmp_path: Path, state: str, run_count: int, since: timedelta, worker: str, is_dead: bool
) -> None:
    run = FlowRun(
        flow_id=uuid4(),
        state=State(type=StateType(state), timestamp=datetime.now(UTC) - since),
        run_count=run_count,
        labels={"prefect.worker.name": worker},
    )
    store, client = Store.open(tmp_path), create_autospec(SyncPrefectClient, instance=True)
    client.read_flow_runs.return_value = [run]
    store.catalog.add_run(str(run.id), profile="own")
    store.catalog.note_end(str(run.id), state="crashed", message="it was killed")

    assert bool(list(dead_runs(store, client))) is is_dead
