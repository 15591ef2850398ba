"""What is recorded of runs and of the code and machine they ran on; tags, notes, lists and names."""

import shutil
import subprocess
import sys

import pytest

from tests.test_tasks.store_stages import ask
from tokmill.flows.library.runs import order_by
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.peak_memory import held_bytes
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, RunArtifact, Store
from tokmill.tasks.store.provenance import Machine, digest_of_changes, git_state
from tokmill.tasks.store.references import (
    Column,
    Order,
    RunFilter,
    find_columns,
    find_run_id,
    list_runs,
    run_of,
    tags_of_runs,
)
from tokmill.tasks.store.runs import (
    Begun,
    Found,
    Override,
    RunInput,
    StartedBy,
    annotate,
    read_run,
    run_path,
)

REF = ArtifactRef(kind="text", name="n", fingerprint="f" * 64, content_digest="c" * 64)

HELD_BYTES = 64 << 20
HOLDING = f"""
from tokmill.tasks.core.peak_memory import held_bytes, peak_memory
before = held_bytes()
with peak_memory() as outer:
    with peak_memory() as inner:
        held = b"x" * {HELD_BYTES}
        del held
with peak_memory() as after:
    pass
print(before, outer.num_bytes, inner.num_bytes, after.num_bytes)
"""


def begin(store: Store, run_id: str, **known: object) -> None:
    store.catalog.add_run(run_id, begun=Begun(**{"name": run_id, "profile": "p", **known}))


def end(store: Store, run_id: str, **metrics: float | str) -> None:
    made = RunArtifact(task="write", ref=REF, how="made", seconds=1.5, peak_bytes=7)
    found = Found([made], [RunInput(role="source", name="web", digest="d", num_files=2)], metrics)
    store.catalog.finish_run(run_id, state="completed", found=found)


def listed(store: Store, **where: object) -> list[str]:
    return [row["run_id"] for row in list_runs(store.catalog, RunFilter(**where))]


def test_rows_of_a_run(store: Store) -> None:
    begin(
        store,
        "r",
        parameters={"mix": {"weights": {"a": 1.5}, "seed": 7}, "formats": ["x", "y"]},
        overrides=[Override(field="mix.seed", before=1, after=7)],
        experiment="e",
        notes="why",
        url="http://host/run",
        provenance=Provenance(dirty_digest="dd", packages={"tokmill": "0.1"}),
        started_by=StartedBy(how="schedule", detail="nightly"),
        machine=Machine(host="h"),
        packages={"numpy": "2"},
    )
    end(store, "r", **{"text.num_chars": 4, "text.word": "w"})

    def rows(columns: str, table: str) -> list[tuple[object, ...]]:
        return [
            (*row.values(),) for row in store.catalog.query(f"SELECT {columns} FROM {table} ORDER BY ALL")
        ]

    assert rows("overrides, packages, name, experiment, notes, url, started_by, tokmill, host", "runs") == [
        ('{"mix.seed":7}', '{"numpy":"2"}', "r", "e", "why", "http://host/run", "schedule", "0.1", "h")
    ]
    assert rows("num_made, num_cached, peak_bytes, dirty_digest", "runs") == [(1, 0, 7, "dd")]
    assert rows("name, value, text", "run_parameters") == [
        ("formats", None, '["x","y"]'),
        ("mix.seed", 7.0, "7"),
        ("mix.weights.a", 1.5, "1.5"),
    ]
    metrics = [(1, "text.num_chars", "4"), (1, "text.word", "w")]
    assert rows("attempt, name, text", "run_metrics") == metrics
    assert rows("seconds, peak_bytes", "run_artifacts") == [(1.5, 7)]
    assert rows("role, name, num_files", "run_inputs") == [("source", "web", 2)]


def test_a_retry_is_an_attempt_of_its_own_with_what_the_first_one_had(store: Store) -> None:
    begin(store, "r", started_by=StartedBy(how="page", user="ann"))
    found = Found([RunArtifact(task="write", ref=REF, how="made")], metrics={"text.n": 1})
    store.catalog.finish_run("r", state="failed", message="mix: no", found=found)
    begin(store, "r", started_by=StartedBy(how="page", user="ann"))
    end(store, "r", **{"text.n": 2})

    run = read_run(run_path(store.layout.runs, "r"))
    assert [(each.state, each.num("made"), dict(each.metrics)) for each in run.earlier] == [
        ("failed", 1, {"text.n": 1})
    ]
    assert (run.started_by.how, run.started_by.user) == ("retry", "ann")
    every = list_runs(store.catalog, RunFilter(attempts=True), [Column("metric", "text.n")])
    assert [(row["attempt"], row["state"], row["values"]["text.n"]) for row in every] == [
        (2, "completed", 2),
        (1, "failed", 1),
    ]
    assert [row["attempt"] for row in list_runs(store.catalog)] == [2]
    store.catalog.note_end("r", state="suspended", message="")
    begin(store, "r")
    assert read_run(run_path(store.layout.runs, "r")).started_by.how == "resume"


def test_tags_and_notes_are_added_while_a_run_goes_on(store: Store) -> None:
    begin(store, "r", tags=["base", "bad"])
    annotate(store.layout, "r", "tag", "winner")
    annotate(store.layout, "r", "untag", "bad")
    annotate(store.layout, "r", "note", "looks good")
    end(store, "r")

    assert tags_of_runs(store.catalog) == {"r": ["base", "winner"]}
    assert (listed(store, tag="winner"), listed(store, tag="bad")) == (["r"], [])
    annotate(store.layout, "r", "tag", "bad")
    assert tags_of_runs(store.catalog) == {"r": ["bad", "base", "winner"]}
    store.catalog.rebuild()
    assert tags_of_runs(store.catalog) == {"r": ["bad", "base", "winner"]}
    assert store.verify() == []
    for action, text in (("tag", "two words"), ("tag", ""), ("note", " "), ("note", "x" * 10_001)):
        with pytest.raises(StoreError):
            annotate(store.layout, "r", action, text)


def test_lists_are_filtered_and_sorted(store: Store) -> None:
    begin(store, "one", experiment="e", parameters={"t": 2, "mix": {"method": "b"}})
    end(store, "one", **{"audit.bytes_per_token": 3.5})
    begin(store, "two", experiment="e", profile="q", parameters={"t": 10, "mix": {"method": "a"}})
    end(store, "two", **{"audit.bytes_per_token": 4.5})
    begin(store, "three", parameters={"t": 1})

    assert listed(store) == ["three", "two", "one"]
    assert listed(store, experiment="e") == ["two", "one"]
    assert (listed(store, profile="q"), listed(store, state="running")) == (["two"], ["three"])
    assert listed(store, since="2999-01-01") == []
    (best,) = find_columns(store.catalog, ["bytes_per_token"])
    assert best == Column("metric", "audit.bytes_per_token")

    def ids(name: str, *, descending: bool, complete: bool = False) -> list[str]:
        (column,) = find_columns(store.catalog, [name])
        rows = list_runs(store.catalog, order=Order(column, descending), complete=complete)
        return [row["run_id"] for row in rows]

    assert ids("bytes_per_token", descending=True) == ["two", "one", "three"]
    assert ids("bytes_per_token", descending=False, complete=True) == ["one", "two"]
    end(store, "three", t=0.5)  # measured, and allowed by a parameter of that name
    (measured, allowed) = find_columns(store.catalog, ["t", "parameter:t"])
    assert (measured.of, allowed.of, allowed.label) == ("metric", "parameter", "parameter:t")
    assert ids("parameter:t", descending=True) == ["two", "one", "three"]  # as numbers: 10 > 2 > 1
    assert ids("mix.method", descending=False) == ["two", "one", "three"]
    assert ids("mix.method", descending=True, complete=True) == ["one", "two"]
    begin(store, "four")
    assert ids("seconds", descending=False)[-1] == "four"  # which has not ended
    (row,) = list_runs(store.catalog, RunFilter(profile="q"), [best, measured, allowed])
    assert row["values"] == {"audit.bytes_per_token": 4.5, "t": None, "parameter:t": 10}


def test_of_the_best_those_that_lose_text_come_last(store: Store) -> None:
    for run_id, (compression, unknown) in {"a": (2.5, {}), "b": (9.5, {"audit.unknown_share": 0.2})}.items():
        begin(store, run_id)
        end(store, run_id, **{"audit.bytes_per_token": compression, "audit.fertility": 1.0, **unknown})

    for name in ("audit.bytes_per_token", "audit.fertility"):
        order = order_by(Column("metric", name), lowest=None, best=True)
        assert [row["run_id"] for row in list_runs(store.catalog, order=order, complete=True)] == ["a", "b"]
    assert order_by(Column("metric", "packed.padding_share"), lowest=None, best=True).lost is None


def test_values_are_listed_as_they_were_recorded(store: Store) -> None:
    recorded = {
        "huge": 10**400,
        "least": -(10**400),
        "big": 2**53 + 1,
        "most": 2**63 - 1,
        "no": False,
        "share": 0.5,
        "whole": 3.0,
        "word": "x",
    }
    begin(store, "r", parameters=recorded)
    columns = find_columns(store.catalog, recorded)

    (row,) = list_runs(store.catalog, columns=columns)

    assert row["values"] == recorded
    assert {name: type(value) for name, value in row["values"].items()} == {
        name: type(value) for name, value in recorded.items()
    }


def test_a_run_is_named_by_id_prefix_name_tag_artifact_or_as_the_latest(store: Store) -> None:
    ref = store.realize(ask("one")).ref
    for run_id, name in (("abcd-1", "first · t 5"), ("abcd-2", "other"), ("bbbb-3", "first · t 5")):
        begin(store, run_id, name=name)
        annotate(store.layout, run_id, "tag", "winner")
    for run_id, how in (("abcd-2", "cached"), ("abcd-1", "made")):
        item = RunArtifact(task="write", ref=ref, how=how)
        store.catalog.finish_run(run_id, state="completed", found=Found([item]))

    assert find_run_id(store, "latest") == "bbbb-3"
    assert find_run_id(store, "abcd-2") == find_run_id(store, "other") == "abcd-2"
    assert find_run_id(store, "bbbb") == find_run_id(store, "first · t 5") == "bbbb-3"
    assert find_run_id(store, "text/one") == run_of(store, ref) == "abcd-1"
    for reference, words in {
        "abcd": r"fits 2 runs: .*abcd-1",
        "first t 5": "did you mean 'first · t 5'",
        "zzz": "the latest are bbbb-3",
        "winner": "tag winner.* fits 3 runs",
    }.items():
        with pytest.raises(StoreError, match=words):
            find_run_id(store, reference)
    for run_id in ("abcd-2", "bbbb-3"):
        annotate(store.layout, run_id, "untag", "winner")
    assert find_run_id(store, "winner") == "abcd-1"


@pytest.mark.skipif(held_bytes() is None, reason="memory is measured in /proc")
def test_peak_memory_is_that_of_the_block() -> None:
    """In a process of its own: what other threads of this one hold may fall between two looks."""
    done = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True, check=True)
    before, outer, inner, after = map(int, done.stdout.split())
    assert inner - before > HELD_BYTES * 0.9
    assert outer - before > HELD_BYTES * 0.9
    assert after - before < HELD_BYTES / 2, "what an earlier block held is no part of a later one's peak"


def git(folder, *arguments):
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_changed_and_new_code_makes_a_checkout_dirty_and_has_a_digest(checkout):
    digests = []
    for name, text, is_dirty in (
        ("notes.txt", "no code", False),
        ("tasks/a.py", "a = 2\n", True),
        ("tasks/a.py", "a = 1\n", False),
        ("tasks/b.py", "b = 1\n", True),
        ("tasks/b.py", "b = 2\n", True),
    ):
        (checkout / name).write_text(text)
        assert git_state(checkout)[1] is is_dirty
        digests += [digest_of_changes(checkout)] * is_dirty
    assert len(set(digests)) == 3


@pytest.mark.parametrize("behaviour", ["exit 1", "kill -9 $$", "echo"])
def test_a_git_that_fails_is_no_failure(tmp_path, monkeypatch, behaviour):
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\n{behaviour}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".git").mkdir()
    assert git_state(tmp_path) == (None, None)
