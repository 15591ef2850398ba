"""Collection beside real runs: what a run needs stays, whatever else goes, and its digests are the same."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import write_project
from tokmill.flows.upkeep.checking import check_store, usage_of
from tokmill.flows.upkeep.collecting import collect_garbage
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.retention import Policy

pytestmark = pytest.mark.slow

WAIT_SECONDS = 300
PACE = threading.Event()  # never set
LENGTHS = (64, 96)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, with the same one under another name."""
    made = tmp_path_factory.mktemp("project")
    write_project(made)
    profile = (made / "tiny.toml").read_text(encoding="utf-8")
    (made / "other.toml").write_text(profile.replace('name = "tiny"', 'name = "other"'), encoding="utf-8")
    return made


def begun(folder: Path, store: Path, profile: str, *arguments: str) -> subprocess.Popen[str]:
    """Start `tokmill run` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tokmill", "run", profile, "--no-prefect", "--json", *arguments],
        cwd=folder,
        env=clean_environment(TOKMILL_STORE=str(store)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(run: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a run; return what it printed."""
    out, errors = run.communicate()
    assert run.returncode == 0, errors
    return dict(json.loads(out))


def packed_digest(store: Store, length: int) -> str:
    """The content digest of the packed artifact with this length of sequences."""
    rows = store.catalog.query("SELECT fingerprint FROM artifacts WHERE kind = 'packed'")
    records = [store.read("packed", row["fingerprint"]) for row in rows]
    return next(one.content_digest for one in records if one.params["sequence_length"] == length)


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> tuple[Path, dict[int, str]]:
    """A store that nobody disturbs, and its digests by length."""
    store = Store.open(folder / "undisturbed")
    for length in LENGTHS:
        ended(begun(folder, store.root, "tiny.toml", "--set", f"pack.sequence_length={length}"))
    return store.root, {length: packed_digest(store, length) for length in LENGTHS}


@pytest.fixture
def store(folder: Path, undisturbed: tuple[Path, dict[int, str]], tmp_path: Path) -> Store:
    """A copy of that store."""
    subprocess.run(["cp", "-r", str(undisturbed[0]), str(tmp_path / "store")], check=True)
    return Store.open(tmp_path / "store")


def once(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait until a condition holds while a run goes on."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert run.poll() is None, "the run has ended"
        assert time.monotonic() < until, "it did not come to be"
        PACE.wait(0.005)


def stopped_when(store: Store, kind: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a run, and stop its process once it has an artifact of a kind."""
    before = set(store.root.glob(f"{kind}/*"))
    run = begun(folder, store.root, *arguments)
    once(lambda: set(store.root.glob(f"{kind}/*")) > before, run)
    run.send_signal(signal.SIGSTOP)
    return run


@pytest.fixture
def ending() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed if a test fails."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_what_a_run_found_and_made_stays_while_it_works(store, folder, undisturbed, ending):
    """It finds everything up to its packing under names of another profile, and packs in a new way."""
    run = stopped_when(store, "pack_plan", folder, "other.toml", "--set", "pack.sequence_length=80")
    ending.append(run)

    gone = collect_garbage(store, older_than_days=0, keep=0, apply=True)
    again = collect_garbage(store, older_than_days=0, keep=0, apply=True)
    run.send_signal(signal.SIGCONT)
    done = ended(run)

    assert {item.kind for item in gone.removed} >= {"packed", "packed_shard", "card"}
    assert {item.kind for item in gone.removed} & {
        "corpus",
        "counts",
        "tokenizer",
        "encoded",
        "mixture",
    } == set()
    assert again.removed == []
    assert check_store(store).ok
    assert done["num_cached"] > 10
    assert ended(begun(folder, store.root, "other.toml", "--set", "pack.sequence_length=80"))["num_made"] == 0


def test_what_a_killed_run_held_goes(store, folder, ending):
    run = stopped_when(store, "pack_plan", folder, "other.toml", "--set", "pack.sequence_length=80")
    ending.append(run)
    run.kill()
    run.communicate()

    collect_garbage(store, older_than_days=0, keep=0, apply=True)

    assert list(store.layout.artifacts()) == []
    assert check_store(store).ok


def test_runs_that_come_and_go_beside_a_collector_give_the_same(store, folder, undisturbed, ending):
    """Two profiles with the same artifacts, again and again, while all that nothing needs is removed."""
    for number in range(3):
        length = LENGTHS[number % 2]
        runs = [
            begun(folder, store.root, profile, "--set", f"pack.sequence_length={length}", "--workers", "1")
            for profile in ("tiny.toml", "other.toml")
        ]
        ending += runs
        while any(run.poll() is None for run in runs):
            collect_garbage(store, older_than_days=0, keep=0, apply=True)
            PACE.wait(0.05)
        for run in runs:
            _, errors = run.communicate()
            assert run.returncode == 0, errors

    ended(begun(folder, store.root, "tiny.toml", "--set", f"pack.sequence_length={LENGTHS[0]}"))
    assert packed_digest(store, LENGTHS[0]) == undisturbed[1][LENGTHS[0]]
    assert check_store(store).ok
    assert list(store.layout.leases.iterdir()) == []


def test_the_last_version_and_run_are_kept_and_the_reports_add_up(store, folder, undisturbed):
    found = collect_garbage(store, older_than_days=0)
    applied = collect_garbage(store, older_than_days=0, apply=True)
    usage = usage_of(store, "profile", Policy(0, 1))

    assert {(item.kind, item.label) for item in found.removed} == {
        (kind, "v1") for kind in ("card", "pack_plan", "packed", "packed_shard")
    }
    assert [item.reference for item in applied.removed] == [item.reference for item in found.removed]
    assert applied.num_bytes == found.num_bytes > 0
    assert (usage.total.free_bytes, list(usage.shares)) == (0, ["tiny"])
    assert usage.total.num_bytes == sum(total for _, total in found.kept.values())
    assert "| card |" in found.to_markdown().replace("  ", " ")
    assert json.loads(json.dumps(applied.to_json()))["num_bytes"] == found.num_bytes
    assert (
        ended(begun(folder, store.root, "tiny.toml", "--set", f"pack.sequence_length={LENGTHS[1]}"))[
            "num_made"
        ]
        == 0
    )


def test_a_check_names_what_is_wrong(store):
    place = next(store.root.glob("tokenizer/*/tokmill.json"))
    place.write_text("x" * place.stat().st_size)

    deep, sizes = check_store(store), check_store(store, deep=False)

    assert (deep.ok, sizes.ok) == (False, True)
    assert deep.num_artifacts == sizes.num_artifacts == len(list(store.layout.artifacts()))
    assert "tokmill.json" in deep.to_markdown()
    assert "1 problem" in deep.summary


@pytest.mark.parametrize(
    "settings", [*({"older_than_days": days} for days in (-1, float("nan"), 1e300)), {"keep": -1}]
)
def test_settings_out_of_bounds_are_refused(store, settings):
    with pytest.raises(StoreError, match="must be at least 0"):
        collect_garbage(store, apply=True, **settings)
