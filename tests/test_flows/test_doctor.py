"""`tokmill doctor`: installation, machine, speed, store, and a server; each finding has its fix."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec
from uuid import uuid4

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType

import tokmill
from tests.object_server import Bucket
from tests.test_flows.commands import Outcome, Tokmill, clean_environment
from tests.test_flows.served import POLL
from tokmill.flows.doctor.report import Part, look_at_installation, look_at_packages, required
from tokmill.flows.doctor.speed import LOGGED, Measured, look_at_speed, measure
from tokmill.flows.doctor.stores import look_at_machine, look_at_store
from tokmill.flows.prefect.connection import no_answer
from tokmill.flows.prefect.worker import dead_runs, reconcile, worker_name
from tokmill.tasks.store import Store
from tokmill.tasks.store.disk import ProcessLock
from tokmill.tasks.store.leases import Process
from tokmill.tasks.store.runs import read_run, run_path

TEXTS = ["some text", "of a few words"] * 9


def said(part: Part) -> str:
    """All that a part found, with a fix for each."""
    assert all(finding.what and finding.fix for finding in part.findings)
    return "\n".join(finding.text for finding in part.findings)


def doctor(folder: Path, *options: str, **changes: str) -> Outcome:
    """Run the command where no server is configured."""
    environment = clean_environment(HOME=str(folder))
    return Tokmill(folder, environment)("doctor", "--no-speed", *options, **changes)


def test_without_a_server_a_sound_installation_has_no_failure(tmp_path: Path) -> None:
    store = tokmill.Store(tmp_path / "store")
    tokmill.train(TEXTS, vocab_size=265, store=store)
    told = doctor(tmp_path, "--json").document
    assert [one for one in told["findings"] if one["fails"]] == []
    assert all(one["fix"] for one in told["findings"])
    assert told["server"] == {"api": None}
    assert told["store"]["num_artifacts"] == len(store.artifacts())
    assert told["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert set(told["installation"]["packages"]) == {requirement.name for requirement in required()}
    assert not (tmp_path / ".prefect").exists()
    (tmp_path / "file").write_text("x")
    failed = doctor(tmp_path, "--store", "file")
    assert (failed.code, "is a file; a store is a folder; name another one" in failed.out) == (1, True)
    failed = doctor(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (failed.code, "no Prefect server answers at http://127.0.0.1:9/api" in failed.out) == (1, True)


def test_versions_slow_kernels_and_a_cache_that_does_not_last_are_named(tmp_path: Path, monkeypatch) -> None:
    assert look_at_packages() == []
    (finding,) = look_at_packages(["sqlalchemy<2", "numpy>=2", "tokmill; extra == 'none'"])
    assert finding.text.startswith("sqlalchemy 2.")
    assert finding.fix == "python -m pip install 'sqlalchemy<2'"
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "NUMBA_DISABLE_JIT" in said(look_at_installation())
    (tmp_path / "taken").write_text("x")
    for folder in (tmp_path / "cache", tmp_path / "taken" / "cache"):
        monkeypatch.setenv("TOKMILL_KERNEL_CACHE", str(folder))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        cache = look_at_machine().figures["kernel_cache"]
        assert (cache["folder"] == str(folder)) == (folder.parent == tmp_path)
    assert cache["lasts"] or "TOKMILL_KERNEL_CACHE" in said(look_at_machine())


@pytest.mark.slow
def test_speed_is_measured_and_said_as_a_ratio_to_the_log() -> None:
    measured = measure()
    assert (set(measured.rates), min(measured.rates.values()) > 0) == (set(LOGGED), True)
    half = Measured({name: rate * 0.4 for name, rate in LOGGED.items()}, 1.0)
    slow, equal = look_at_speed(half), look_at_speed(Measured(LOGGED, 1.0))
    assert {figure["ratio"] for name, figure in slow.figures.items() if name in LOGGED} == {0.4}
    assert "more than twice as long" in said(slow)
    assert not equal.findings


def test_leftovers_damage_and_locks_of_a_store_are_found(tmp_path: Path) -> None:
    absent = look_at_store(str(tmp_path / "store"))
    assert (absent.findings, (tmp_path / "store").exists()) == ([], False)  # it is no fault
    store = tokmill.Store(tmp_path / "store")
    tok = tokmill.train(TEXTS, vocab_size=265, store=store)
    assert tok.artifact is not None
    (tok.artifact.path / "tokmill.json").write_text("{}")
    with pytest.raises(Exception, match="tokenizer"):
        tok.artifact.open()
    tokmill.train(TEXTS, vocab_size=265, store=store)  # sets it aside
    lock = ProcessLock(store.layout.locks / "tokenizer-test.lock")
    assert lock.try_acquire()
    try:
        found = look_at_store(store.location)
    finally:
        lock.release()
    assert (found.figures["num_damaged"], found.figures["num_locks"]) == (1, 1)
    assert "set aside as damaged" in said(found)
    assert not any(finding.fails for finding in found.findings)


@pytest.mark.objects
def test_the_rights_in_a_bucket_are_tried_and_nothing_stays(bucket: Bucket) -> None:
    found = look_at_store(f"{bucket.url}/team")
    rights = ("list", "create", "create only once", "read", "remove")
    assert (found.figures["rights"], found.findings) == (dict.fromkeys(rights, True), [])
    assert not list(bucket.keys())
    bucket.fault("answer", method="PUT", status=403, times=None)
    found = look_at_store(f"{bucket.url}/team")
    assert (found.figures["rights"]["list"], found.figures["rights"]["create"]) == (True, False)
    assert "may not be written to" in said(found)
    assert not any(finding.fails for finding in found.findings)
    found = look_at_store(f"{bucket.url}-of-nobody/team")
    assert any(finding.fails for finding in found.findings)
    assert "credentials" in said(found)


OLD, NEW = timedelta(minutes=1), timedelta(0)
OWN = worker_name(Process.own())
ENDED = worker_name(Process.own().model_copy(update={"began": 1}))


def with_crash(folder: Path, run: FlowRun) -> tuple[Store, Any]:
    """A store that has a run as crashed, and a client of a server that knows the run."""
    store, client = Store.open(folder), create_autospec(SyncPrefectClient, instance=True)
    client.read_flow_runs.side_effect = lambda flow_run_filter, **_: (
        [run] if run.state is not None and run.state.type in flow_run_filter.state.type.any_ else []
    )
    store.catalog.add_run(str(run.id), profile="own")
    store.catalog.note_end(str(run.id), state="crashed", message="it was killed")
    return store, client


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
    assert bool(list(dead_runs(*with_crash(tmp_path, run)))) is is_dead


def test_a_run_that_could_not_ask_whether_it_was_cancelled_is_cancelled_later(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.flows.prefect.worker.cancel_tasks", lambda run_id: None)
    run = FlowRun(flow_id=uuid4(), state=State(type=StateType.CANCELLED), run_count=1)
    store, client = with_crash(tmp_path, run)
    assert reconcile(store, client) == []
    assert read_run(run_path(store.layout.runs, str(run.id))).state == "cancelled"


def test_a_refused_password_is_said_to_be_one() -> None:
    api = "http://127.0.0.1:4200/api"
    answer = httpx.Response(401, request=httpx.Request("GET", api))
    refused = httpx.HTTPStatusError("401", request=answer.request, response=answer)
    what, fix = no_answer(api, refused)
    assert ("not allowed" in what, "check PREFECT_API_AUTH_STRING" in fix) == (True, True)
    assert "no Prefect server answers" in no_answer(api, httpx.ConnectError("refused"))[0]


LOOK = """
import json, sys
from datetime import datetime
from tokmill.flows.prefect.doctor import look_at_runs
found = look_at_runs(sys.argv[1], datetime.fromisoformat(sys.argv[2]))
print(json.dumps([finding.text for finding in found]))
"""


def asked(server: dict[str, str], method: str, path: str, body: Any = None) -> Any:
    """Return the answer of the API, asked again while the server's database is locked for a moment."""
    for _ in range(40):
        answer = httpx.request(method, f"{server['PREFECT_API_URL']}{path}", json=body, timeout=30)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            answer.raise_for_status()
            return answer.json() if answer.content else None
        POLL.wait(0.5)
    return pytest.fail(f"{path}: the server stayed unavailable")


@pytest.fixture
def deployment(prefect_server: dict[str, str]) -> Iterator[str]:
    """A deployment `nightly` in a work pool without a worker; yields its id."""
    pool = {"name": "lonely", "type": "process", "base_job_template": {}}
    asked(prefect_server, "POST", "/work_pools/", pool)
    flow = asked(prefect_server, "POST", "/flows/", {"name": "theirs"})["id"]
    new = {"name": "nightly", "flow_id": flow, "work_pool_name": "lonely", "entrypoint": "theirs.py:flow"}
    yield asked(prefect_server, "POST", "/deployments/", new)["id"]
    asked(prefect_server, "DELETE", f"/flows/{flow}")
    asked(prefect_server, "DELETE", "/work_pools/lonely")


@pytest.mark.server
def test_runs_that_nobody_takes_open_doors_and_idle_schedules_are_named(
    on_prefect: Tokmill, prefect_server: dict[str, str], deployment: str
) -> None:
    now = datetime.now(UTC)
    scheduled = {"scheduled_time": (now - timedelta(hours=1)).isoformat()}
    state = {"state": {"type": "SCHEDULED", "state_details": scheduled}}
    asked(prefect_server, "POST", f"/deployments/{deployment}/create_flow_run", state)
    told = on_prefect("doctor", "--json")
    findings = json.loads(told.out)["findings"]
    (late,) = [each["text"] for each in findings if each["text"].startswith("deployment nightly: 1 late")]
    assert (told.code, "no worker is online for its work pool lonely" in late) == (1, True)
    notes = " ".join(each["text"] for each in findings if not each["fails"])
    for door in ("CORS_ALLOWED_ORIGINS", "CSRF_PROTECTION_ENABLED", "DNS rebinding"):
        assert door in notes

    daily = [{"schedule": {"cron": "0 3 * * *"}, "active": True}]
    asked(prefect_server, "POST", f"/deployments/{deployment}/schedules", daily)
    # At once the scheduler need not have worked yet; in 2,000 days none of its runs is in the future.
    for moment in (now, now + timedelta(days=2000)):
        command = [sys.executable, "-c", LOOK, on_prefect.environment["PREFECT_API_URL"], moment.isoformat()]
        done = subprocess.run(command, env=on_prefect.environment, capture_output=True, text=True, check=True)
        idle = [text for text in json.loads(done.stdout) if "an active schedule" in text]
        assert len(idle) == (moment > now)
