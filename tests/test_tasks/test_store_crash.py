"""What a crash leaves: processes are killed, disks fill up, and nothing half-made is taken for whole."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_disk import on_small_disk
from tests.test_tasks.store_child import EVERYTHING, slow_request
from tests.test_tasks.store_stages import ask, ask_joined, catalog_rows, left_over
from tokmill.flows.reproduce.subject import cargo_of
from tokmill.tasks.store import Store
from tokmill.tasks.store.push import move
from tokmill.tasks.store.retention import Policy

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
REQUEST = ask(text="abc", times=3)


def child(*arguments):
    command = [sys.executable, "-m", "tests.test_tasks.store_child", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(*arguments):
    """Run a child to its end; return its exit code and its lines."""
    with child(*arguments) as process:
        told, errors = process.communicate()
    assert "Traceback" not in errors
    return process.returncode, told.splitlines()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return Store.open(tmp_path_factory.mktemp("undisturbed")).realize(REQUEST).ref


def test_wherever_a_process_is_killed_nothing_half_made_is_taken_for_whole(tmp_path, undisturbed):
    """While it publishes, and while it makes the catalog; who comes next gets the same and leaves nothing."""
    code, steps = ran("at-every-step", "publishing", tmp_path)
    assert code == 0
    passed = ["/out/text.txt", "/labels/text/one/@v1", "/out/record.json", "os.rename", "catalog"]
    places = [next(index for index, step in enumerate(steps) if what in step) for what in passed]
    assert places == sorted(places)
    assert len(steps) > 20
    for number, step in enumerate(steps):
        store = Store.open(tmp_path / str(number))
        assert store.verify() == [], step
        assert store.lookup(REQUEST, verify="full") == (undisturbed if number > places[3] else None), step
        assert store.realize(REQUEST).ref == undisturbed, step
        store.sweep()
        assert left_over(store.root) == [], step
        assert store.names.labels("text", "one") == {"v1": undisturbed.fingerprint}, step
        if number % 5 == 0:
            found = catalog_rows(store)
            assert [row["fingerprint"] for row in found["artifacts"]] == [undisturbed.fingerprint], step
            store.catalog.rebuild()
            assert catalog_rows(store) == found, step


def unfinished(root):
    """What is only there while somebody works on a store."""
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and (path.name.startswith(".") or {".tmp", ".locks", "leases"} & set(path.parts))
    ]


@pytest.mark.parametrize("work", ["collecting", "removing"])
def test_who_removes_may_be_killed_at_any_step(tmp_path, work):
    base = Store.open(tmp_path / "base")
    given = base.realize(ask("base")).ref
    made = base.realize(ask_joined("made", given)).ref
    kept = base.realize(ask("kept", text="k")).ref
    base.tag(kept, "prod")
    base.list()

    code, steps = ran("at-every-step", work, tmp_path, base.root)

    assert code == 0
    seen = set()
    for number, step in enumerate(steps):
        store = Store.open(tmp_path / str(number))
        assert store.verify() == [], step
        present = [store.holds(ref) for ref in (kept, given, made)]
        assert present in ([True, True, True], [True, True, False], [True, False, False]), step
        seen.add(present.count(False))
        if EVERYTHING and number % 5:
            continue
        with store.at_work("something else"):  # whoever writes next sweeps
            assert [path.name[:14] for path in unfinished(store.root)] == ["something else"], step
        store.collect(Policy(older_than_days=0, keep=0))
        assert [store.holds(ref) for ref in (kept, given, made)] == [True, False, False], step
        assert store.verify() == [], step
        assert left_over(store.root) == [], step
    assert seen == {0, 1, 2}  # some died between the two removals


def test_who_pushes_may_be_killed_at_any_step(tmp_path):
    base = Store.open(tmp_path / "base")
    given = base.realize(ask("base")).ref
    made = base.realize(ask_joined("made", given)).ref
    base.tag(made, "prod")
    base.catalog.add_run("run-1")
    base.catalog.finish_run("run-1", state="completed")
    base.list()

    code, steps = ran("at-every-step", "pushing", tmp_path, base.root)

    assert code == 0
    assert len(steps) > 3
    for number, step in enumerate(steps):
        store = Store.open(tmp_path / str(number))
        assert store.verify() == [], step
        assert [store.holds(ref) for ref in (given, made)] != [False, True], step
        move(base, store, cargo_of(base, []), str)
        assert store.verify() == [], step
        assert store.resolve("joined/made@prod") == made, step
        assert store.holds(given), step
        assert [row["run_id"] for row in store.catalog.query("SELECT run_id FROM runs")] == ["run-1"], step
        assert left_over(store.root) == [], step


def test_a_waiting_process_takes_over_from_a_killed_one(tmp_path):
    with child("slowly", tmp_path) as first:
        assert first.stdout.readline() == "running\n"
        with child("slowly", tmp_path) as second:
            waiting = f"text/slow is being made by process {first.pid}; waiting for it\n"
            assert second.stdout.readline() == waiting
            assert (Store.open(tmp_path).sweep(), len(left_over(tmp_path))) == ([], 2)
            first.kill()
            assert second.stdout.readline() == "running\n"
            told, _ = second.communicate("\n")
        first.communicate()
    store = Store.open(tmp_path)
    assert told == f"made {store.lookup(slow_request(), verify='full').content_digest}\n"
    assert left_over(tmp_path) == []  # the second swept what the first left


def ran_on_a_small_disk(place, *arguments):
    """Run a child on a file system of 2 MiB of its own, which ends with it; return its lines."""
    child_command = [sys.executable, "-m", "tests.test_tasks.store_child", *map(str, arguments)]
    done = subprocess.run(
        on_small_disk(place, "2m", f"exec {shlex.join(child_command)}"),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []  # it was mounted for the child only
    return done.stdout.splitlines()


def test_wherever_the_disk_is_full_an_artifact_is_whole_or_absent(tmp_path):
    """The child fills the disk to within ever fewer pages, so that ever earlier steps have no room."""
    outcomes = ran_on_a_small_disk(tmp_path / "disk", "with-little-room", tmp_path / "disk")
    assert set(outcomes[:-1]) == {"published", "refused"}
    assert outcomes[-1] == f"listed {outcomes.count('published')}, problems 0"
