"""Collection beside real runs: what a run needs stays, whatever else goes, and its digests are the same."""

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.stopped import wait_until
from tokmill.flows.upkeep.checking import check_store, usage_of
from tokmill.flows.upkeep.collecting import collect_garbage
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.retention import Policy

pytestmark = pytest.mark.slow

PACE = threading.Event()  # never set
LENGTHS = (64, 96)
Process = subprocess.Popen[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokmill, dict[int, str]]:
    """A project, with the same one under another name, that nobody disturbs; its digests by length."""
    tokmill = Tokmill(tmp_path_factory.mktemp("project"), clean_environment())
    write_project(tokmill.folder)
    profile = (tokmill.folder / "tiny.toml").read_text(encoding="utf-8")
    other = profile.replace('name = "tiny"', 'name = "other"')
    (tokmill.folder / "other.toml").write_text(other, encoding="utf-8")
    for length in LENGTHS:
        ended(begun(tokmill, "tiny.toml", length))
    store = Store.open(tokmill.store)
    return tokmill, {length: packed_digest(store, length) for length in LENGTHS}


@pytest.fixture
def tokmill(undisturbed: tuple[Tokmill, dict[int, str]], tmp_path: Path) -> Iterator[Tokmill]:
    """A copy of that project, whose runs are killed if a test fails."""
    folder = shutil.copytree(undisturbed[0].folder, tmp_path / "project", symlinks=True)
    STARTED.clear()
    yield undisturbed[0].at(folder)
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def store(tokmill: Tokmill) -> Store:
    return Store.open(tokmill.store)


STARTED: list[Process] = []


def begun(tokmill: Tokmill, profile: str, length: int, *arguments: str) -> Process:
    """Start a run in a process of its own."""
    packing = ("--set", f"pack.sequence_length={length}")
    STARTED.append(tokmill.start("run", profile, "--no-prefect", "--json", *packing, *arguments))
    return STARTED[-1]


def ended(run: Process) -> dict[str, Any]:
    """Wait for a run; return what it printed."""
    out, errors = run.communicate()
    assert run.returncode == 0, errors
    return dict(json.loads(out))


def stopped_at_packing(tokmill: Tokmill) -> Process:
    """Start a run under names of another profile, and stop its process once it packs in a new way."""
    before = set(tokmill.store.glob("pack_plan/*"))
    run = begun(tokmill, "other.toml", 80)

    def packs() -> bool:
        assert run.poll() is None, "the run has ended"
        return set(tokmill.store.glob("pack_plan/*")) > before

    wait_until(packs, "it packed", pause=0.005)
    run.send_signal(signal.SIGSTOP)
    return run


def packed_digest(store: Store, length: int) -> str:
    """The content digest of the packed artifact with this length of sequences."""
    rows = store.catalog.query("SELECT fingerprint FROM artifacts WHERE kind = 'packed'")
    records = [store.read("packed", row["fingerprint"]) for row in rows]
    return next(one.content_digest for one in records if one.params["sequence_length"] == length)


def test_what_a_run_found_and_made_stays_while_it_works(tokmill: Tokmill, store: Store) -> None:
    run = stopped_at_packing(tokmill)
    gone, again = (collect_garbage(store, older_than_days=0, keep=0, apply=True) for _ in range(2))
    run.send_signal(signal.SIGCONT)
    done = ended(run)
    kinds = {item.kind for item in gone.removed}
    assert kinds >= {"packed", "packed_shard", "card"}
    assert not kinds & {"corpus", "counts", "tokenizer", "encoded", "mixture"}
    assert again.removed == []
    assert check_store(store).ok
    assert done["num_cached"] > 10
    assert ended(begun(tokmill, "other.toml", 80))["num_made"] == 0


def test_what_a_killed_run_held_goes(tokmill: Tokmill, store: Store) -> None:
    run = stopped_at_packing(tokmill)
    run.kill()
    run.communicate()
    collect_garbage(store, older_than_days=0, keep=0, apply=True)
    assert list(store.layout.artifacts()) == []
    assert check_store(store).ok


def test_runs_that_come_and_go_beside_a_collector_give_the_same(
    tokmill: Tokmill, store: Store, undisturbed: tuple[Tokmill, dict[int, str]]
) -> None:
    """Two profiles with the same artifacts, again and again, while all that nothing needs is removed."""
    for length in (*LENGTHS, LENGTHS[0]):
        runs = [begun(tokmill, profile, length, "--workers", "1") for profile in ("tiny.toml", "other.toml")]
        while any(run.poll() is None for run in runs):
            collect_garbage(store, older_than_days=0, keep=0, apply=True)
            PACE.wait(0.05)
        for run in runs:
            ended(run)
    ended(begun(tokmill, "tiny.toml", LENGTHS[0]))
    assert packed_digest(store, LENGTHS[0]) == undisturbed[1][LENGTHS[0]]
    assert check_store(store).ok
    assert list(store.layout.leases.iterdir()) == []


def test_the_last_version_and_run_are_kept_and_the_reports_add_up(tokmill: Tokmill, store: Store) -> None:
    found, applied = (collect_garbage(store, older_than_days=0, apply=apply) for apply in (False, True))
    usage, kinds = usage_of(store, "profile", Policy(0, 1)), ("card", "pack_plan", "packed", "packed_shard")
    assert {(item.kind, item.label) for item in found.removed} == {(kind, "v1") for kind in kinds}
    assert [item.reference for item in applied.removed] == [item.reference for item in found.removed]
    assert applied.num_bytes == found.num_bytes > 0
    assert (usage.total.free_bytes, list(usage.shares)) == (0, ["tiny"])
    assert usage.total.num_bytes == sum(share.num_bytes for share in found.stays)
    assert "| card |" in found.to_markdown().replace("  ", " ")
    assert json.loads(json.dumps(applied.to_json()))["num_bytes"] == found.num_bytes
    assert ended(begun(tokmill, "tiny.toml", LENGTHS[1]))["num_made"] == 0


def test_a_check_names_what_is_wrong_and_settings_out_of_bounds_are_refused(store: Store) -> None:
    place = next(store.root.glob("tokenizer/*/tokmill.json"))
    place.write_text("x" * place.stat().st_size)
    deep, sizes = check_store(store), check_store(store, deep=False)
    assert (deep.ok, sizes.ok) == (False, True)
    assert deep.num_artifacts == sizes.num_artifacts == len(list(store.layout.artifacts()))
    assert ("tokmill.json" in deep.to_markdown(), "1 problem" in deep.summary) == (True, True)
    for settings in (*({"older_than_days": days} for days in (-1, float("nan"), 1e300)), {"keep": -1}):
        with pytest.raises(StoreError, match="must be at least 0"):
            collect_garbage(store, apply=True, **settings)
