"""Running work: what it needs, whether it lives, how it ended, and who noticed."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import Store, shared
from tokmill.tasks.store.leases import SILENCE_SECONDS, Process, hold, leased, live_leases
from tokmill.tasks.store.references import find_run_id

WORKING = """
import sys
from pathlib import Path
from tests.test_tasks.store_stages import ask
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.leases import hold
store = Store.open(sys.argv[1])
catalog = store.catalog
with catalog.alive("r"):
    catalog.add_run("r", profile="p")
    store.realize(ask("one"), provenance=Provenance.collect(run_id="r"))
    hold(["a" * 64])
    print("at work", flush=True)
    sys.stdin.read()
"""

in_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def states(store: Store) -> list[tuple[object, ...]]:
    rows = store.catalog.query("SELECT run_id, attempt, state, message FROM runs ORDER BY ALL")
    return [tuple(row.values()) for row in rows]


@in_proc
def test_a_run_whose_process_was_killed_is_noticed_by_who_looks_next_with_what_it_had_made(store, checkout):
    command, pipe = [sys.executable, "-c", WORKING, str(store.root)], subprocess.PIPE
    with subprocess.Popen(command, cwd=checkout, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "at work\n"
        assert states(store) == [("r", 1, "running", "")]
        assert "a" * 16 in held(store)["r"]
        process.kill()

    assert held(store) == {}
    ((_, _, state, message),) = states(store)
    assert (state, f"process {process.pid} on" in message) == ("crashed", True)
    assert store.catalog.query("SELECT num_made FROM runs") == [{"num_made": 1}]
    assert find_run_id(store, "text/one@v1") == "r"
    assert [path.name for path in (store.root / "runs").iterdir()] == ["r.json"]
    assert list((store.root / "leases").iterdir()) == []


def test_a_remote_that_does_not_answer_at_the_end_hides_no_error_and_keeps_the_lease(store, monkeypatch):
    def unreachable(path: Path, *, sure: bool = False) -> bool:
        raise MachineError("the remote cannot be reached")

    def fail() -> None:
        with store.catalog.alive("r"):
            store.catalog.add_run("r")
            monkeypatch.setattr(shared, "bring", unreachable)
            raise StoreError("its own")

    with pytest.raises(StoreError, match="its own"):
        fail()
    assert [path.name for path in (store.root / "leases").iterdir()] == ["r.json"]


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


def test_an_attempt_that_ended_without_a_word_did_crash(store):
    store.catalog.add_run("r")
    store.catalog.add_run("r")

    assert [row[1:3] for row in states(store)] == [(1, "crashed"), (2, "running")]


def held(store: Store) -> dict[str, list[str] | None]:
    return {key: needs.holds for key, needs in live_leases(store.layout).items()}


def test_a_lease_has_what_is_made_in_its_block_and_what_that_is_made_from(store):
    given = store.realize(ask("given")).ref
    with leased(store.layout, "r", names="p"):
        joined = store.realize(ask_joined("joined", given)).ref
        wanted = [joined.fingerprint, given.fingerprint]

        assert held(store) == {"r": sorted(each[:16] for each in wanted)}
        assert live_leases(store.layout)["r"].names == "p"
    assert held(store) == {}


def test_work_has_a_lease_of_its_own_or_that_of_the_run_and_else_needs_nothing(store):
    hold(["a" * 64])
    assert held(store) == {}

    with store.at_work("export"):
        hold(["a" * 64])
        ((key, found),) = held(store).items()
    assert (key.startswith("export-"), found) == (True, ["a" * 16])
    with leased(store.layout, "r"), store.at_work("export"), leased(store.layout, "r"):
        hold(["a" * 64])
        assert held(store) == {"r": ["a" * 16]}


def test_a_lease_that_cannot_be_read_needs_everything(store):
    with leased(store.layout, "r"):
        (store.layout.leases / "r.json").write_text("{")
        assert held(store) == {"r": None}


def test_a_lease_of_another_machine_is_as_old_as_the_clock_of_the_file_system_says(store, monkeypatch):
    """However wrong this machine's clock is: a lease that was renewed a moment ago is alive."""
    with leased(store.layout, "r"):
        path = store.layout.leases / "r.json"
        path.write_text(re.sub('"boot":"[^"]*"', '"boot":"another machine"', path.read_text()))
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        monkeypatch.setattr(time, "time", lambda: 4e9)
        assert held(store) == {"r": []}
        assert store.list() == []
        assert path.exists()

        long_ago = path.stat().st_mtime_ns - 400 * 10**9
        os.utime(path, ns=(long_ago, long_ago))
        assert held(store) == {}
