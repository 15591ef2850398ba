"""Runs in the catalog: how they ended, who noticed, and what they did when they were executed before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.leases import SILENCE_SECONDS, Process

WORKING = """
import sys
from pathlib import Path
from tokmill.tasks.store import Store
catalog = Store.open(sys.argv[1]).catalog
with catalog.alive("r"):
    catalog.add_run("r", profile="p")
    print("at work", flush=True)
    sys.stdin.read()
    catalog.finish_run("r", state="completed")
"""

in_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def states(store: Store) -> list[tuple[object, ...]]:
    rows = store.catalog.query("SELECT run_id, attempt, state, message FROM runs ORDER BY ALL")
    return [tuple(row.values()) for row in rows]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def at_work(store: Store):
    """A process that executes run `r` until its standard input is closed."""
    command = [sys.executable, "-c", WORKING, str(store.root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "at work\n"
        yield process
        process.kill()


@in_proc
def test_a_run_whose_process_was_killed_is_noticed_by_who_looks_next(store, at_work):
    assert states(store) == [("r", 1, "running", "")]

    at_work.send_signal(signal.SIGKILL)
    at_work.wait()

    ((_, _, state, message),) = states(store)
    assert state == "crashed"
    assert f"process {at_work.pid} on" in message
    assert [path.name for path in (store.root / "runs").iterdir()] == ["r.json"]
    assert list((store.root / "leases").iterdir()) == []


def test_a_run_that_ends_says_so_itself(store, at_work):
    at_work.communicate()

    assert states(store) == [("r", 1, "completed", "")]
    assert [path.name for path in (store.root / "runs").iterdir()] == ["r.json"]
    assert list((store.root / "leases").iterdir()) == []


@in_proc
def test_another_process_with_the_same_id_is_not_the_run():
    own = Process.own()

    assert not own.is_gone(lambda: 10 * SILENCE_SECONDS)
    assert own.model_copy(update={"began": own.began - 1}).is_gone(lambda: 0)


def test_a_run_on_another_machine_is_gone_when_it_was_silent_for_long(store):
    store.catalog.add_run("r")
    heartbeat = store.root / "leases" / "r.json"
    heartbeat.parent.mkdir(exist_ok=True)
    heartbeat.write_text(Process(host="far", boot="another", pid=1, began=1).model_dump_json())
    before = states(store)
    long_ago = time.time() - 2 * SILENCE_SECONDS
    os.utime(heartbeat, (long_ago, long_ago))

    assert before == [("r", 1, "running", "")]
    ((_, _, state, message),) = states(store)
    assert (state, "process 1 on far is gone" in message) == ("crashed", True)


def test_a_retry_keeps_what_the_first_attempt_did(store):
    ref = ArtifactRef(kind="text", name="n", fingerprint="f" * 64, content_digest="c" * 64)
    store.catalog.add_run("r", profile="p")
    made = [RunArtifact(task="ingest", ref=ref, how="made")]
    store.catalog.finish_run("r", state="failed", message="mix: too little text", artifacts=made)

    store.catalog.add_run("r", profile="p")

    assert states(store) == [("r", 1, "failed", "mix: too little text"), ("r", 2, "running", "")]
    (row,) = store.catalog.query("SELECT attempt, task FROM run_artifacts")
    assert row == {"attempt": 1, "task": "ingest"}
    store.catalog.rebuild()
    assert [row[1:3] for row in states(store)] == [(1, "failed"), (2, "running")]


def test_an_attempt_that_ended_without_a_word_did_crash(store):
    store.catalog.add_run("r")
    store.catalog.add_run("r")

    assert [row[1:3] for row in states(store)] == [(1, "crashed"), (2, "running")]
