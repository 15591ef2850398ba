"""Leases: what running work needs, and how it and a collector see each other."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import announce, hold, leased, live_leases, withdraw
from tokmill.tasks.store.liveness import silent

HOLDING = """
import sys
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import leased
with leased(Store.open(sys.argv[1]).layout, "r", names="p") as lease:
    lease.hold(["a" * 64])
    print("held", flush=True)
    sys.stdin.read()
"""

in_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


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


def test_work_outside_of_a_run_needs_nothing_unless_it_says_so(store):
    hold(["a" * 64])
    assert held(store) == {}

    with store.at_work("export"):
        hold(["a" * 64])
        ((key, found),) = held(store).items()
    assert (key.startswith("export-"), found) == (True, ["a" * 16])


def test_work_within_a_run_is_the_runs(store):
    with leased(store.layout, "r"), store.at_work("export"), leased(store.layout, "r"):
        hold(["a" * 64])
        assert held(store) == {"r": ["a" * 16]}


def test_a_lease_that_cannot_be_read_needs_everything(store):
    with leased(store.layout, "r"):
        (store.layout.leases / "r.json").write_text("{")
        assert held(store) == {"r": None}


@in_proc
def test_the_lease_of_a_killed_process_needs_nothing(store):
    command = [sys.executable, "-c", HOLDING, str(store.root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert held(store) == {"r": ["a" * 16]}
        process.kill()

    assert held(store) == {}
    store.catalog.settle()
    assert list(store.layout.leases.iterdir()) == []


def test_a_run_waits_until_a_collector_has_read_its_lease(store):
    announce(store.layout, {})
    done = threading.Event()

    def work() -> None:
        with leased(store.layout, "r"):
            hold(["a" * 64])
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    seen: dict[str, int] = {}
    while not done.is_set():
        # Whatever the run does, it is never past a change that the collector has not acknowledged.
        seen = {key: needs.number for key, needs in live_leases(store.layout).items()}
        announce(store.layout, seen)
    thread.join()
    withdraw(store.layout)

    assert seen.keys() == {"r"}


@in_proc
def test_a_run_does_not_wait_for_a_collector_that_died(store):
    announce(store.layout, {})
    path = store.layout.leases / "collector"
    path.write_text(path.read_text().replace('"began":', '"began":1'))

    with leased(store.layout, "r"):
        hold(["a" * 64])


def test_a_file_in_the_place_of_the_leases_is_no_dead_process(tmp_path):
    (tmp_path / "leases").write_text("")
    assert silent(tmp_path / "leases" / "collector") is None
    assert live_leases(Store.open(tmp_path).layout) == {}
