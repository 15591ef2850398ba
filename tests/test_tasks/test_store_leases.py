"""Leases: what running work needs, and whether it lives."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import hold, leased, live_leases

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
