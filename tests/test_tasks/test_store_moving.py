"""Push and pull: what another store has afterwards, what stays, and what is refused."""

from pathlib import Path

import pytest

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.flows.reproduce.subject import cargo_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.push import Moved, move
from tokmill.tasks.store.record import encode_record
from tokmill.tasks.store.removal import remove_one
from tokmill.tasks.store.runs import annotate


@pytest.fixture
def here(tmp_path: Path) -> Store:
    """A store with a joined text, what it was made from, and another text."""
    store = Store.open(tmp_path / "here")
    given = store.realize(ask("given")).ref
    store.realize(ask_joined("made", given))
    store.realize(ask("other", text="o"))
    return store


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "there")


def pushed(here: Store, there: Store, *references: str, **how) -> Moved:
    return move(here, there, cargo_of(here, references), str, **how)


def names(records) -> list[str]:
    return [record.name for record in records]


def test_a_store_that_can_only_be_read_is_copied(here, there):
    """Not even root may write into /sys; so no lease can be written there, as in a read-only folder."""
    here.layout.leases.symlink_to("/sys/kernel")
    with pytest.raises(StoreError, match=r"the lease of .* cannot be written"), here.at_work("export"):
        pass
    assert names(pushed(here, there, "joined/made").of("copy")) == ["given", "made"]
    assert there.verify() == []


def test_an_artifact_comes_with_what_it_was_made_from_and_is_equal_and_only_once(here, there):
    planned = pushed(here, there, "joined/made", dry_run=True)
    assert not there.root.exists()
    moved = pushed(here, there, "joined/made")
    records = [here.record(here.resolve(name)) for name in ("text/given", "joined/made")]
    assert planned.of("copy") == moved.of("copy") == records
    assert planned.num_bytes == sum(record.num_bytes for record in records)
    assert there.verify() == []
    assert [there.record(record.ref) for record in records] == records
    assert {row["name"] for row in there.list()} == {"given", "made"}

    stamp = (there.path(records[0].ref) / "text.txt").stat().st_mtime_ns
    again = pushed(here, there)
    assert (names(again.of("there")), names(again.of("copy"))) == (["given", "made"], ["other"])
    assert (there.path(records[0].ref) / "text.txt").stat().st_mtime_ns == stamp
    assert pushed(here, there).num_bytes == 0


def test_a_taken_label_becomes_the_next_one(here, there):
    there.realize(ask_joined("made", there.realize(ask("own", text="z")).ref))
    moved = pushed(here, there, "joined/made")
    assert moved.relabelled == [("joined/made@v1", "joined/made@v2")]
    ref = here.resolve("joined/made")
    assert there.resolve("joined/made@v2") == ref
    assert there.record(ref).label == "v2"
    assert there.verify() == []


def test_aliases_come_along_and_move_only_if_they_are_named(here, there):
    old = there.realize(ask_joined("made", there.realize(ask("own", text="z")).ref)).ref
    there.tag(old, "prod")
    here.tag(here.resolve("joined/made"), "prod")
    here.tag(here.resolve("joined/made"), "best")
    for dry_run in (True, False):
        moved = pushed(here, there, "joined/made", dry_run=dry_run)
        assert (moved.aliases, moved.kept) == (["joined/made@best"], ["joined/made@prod"])
    assert there.resolve("joined/made@prod") == old
    assert pushed(here, there, "joined/made@prod").aliases == ["joined/made@prod"]
    assert there.resolve("joined/made@prod") == here.resolve("joined/made")


def test_runs_come_with_their_remarks_and_running_ones_stay(here, there):
    for run_id in ("ended", "going-on"):
        here.catalog.add_run(run_id)
    here.catalog.finish_run("ended", state="completed")
    annotate(here.layout, "ended", "tag", "good")
    assert pushed(here, there).runs == ["ended"]
    annotate(here.layout, "ended", "note", "seen")
    pushed(here, there)
    assert [row["run_id"] for row in there.catalog.query("SELECT run_id FROM runs")] == ["ended"]
    assert len(list(there.layout.annotations.iterdir())) == 2
    (here.layout.annotations / "ended.1-a.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="cannot be read as a remark"):
        pushed(here, there)
    assert there.verify() == []


def test_a_run_that_was_tried_again_replaces_its_copy_and_no_later_one(here, there):
    here.catalog.add_run("r")
    here.catalog.finish_run("r", state="failed", message="no text")
    pushed(here, there)
    here.catalog.add_run("r")
    assert pushed(here, there).runs == []  # it is going on
    here.catalog.finish_run("r", state="completed")

    assert pushed(here, there).runs == ["r"]
    assert pushed(here, there).runs == []
    states = "SELECT state FROM runs WHERE run_id = 'r' ORDER BY attempt"
    assert [row["state"] for row in there.catalog.query(states)] == ["failed", "completed"]

    for state in ("failed", "cancelled"):
        there.catalog.add_run("r")
        there.catalog.finish_run("r", state=state)
    here.catalog.add_run("r")
    here.catalog.finish_run("r", state="completed")
    assert pushed(here, there).runs == pushed(there, here).runs == []  # each had attempts of its own
    assert len(there.catalog.query(states)) == 4


@pytest.mark.parametrize("harm", ["a file is gone", "a file was cut", "the record is broken"])
def test_what_is_damaged_there_is_set_aside_and_copied_again(here, there, harm):
    pushed(here, there)
    given = here.resolve("text/given")
    place = there.path(given)
    if harm == "a file is gone":
        (place / "text.txt").unlink()
    else:
        (place / ("text.txt" if "file" in harm else "record.json")).write_text("{")
    assert there.verify() != []

    (problem,) = pushed(here, there, dry_run=True).damaged
    moved = pushed(here, there)

    assert moved.damaged == [problem]
    assert names(moved.of("copy")) == ["given"]
    assert there.verify() == []
    assert there.record(given) == here.record(given)
    assert [row["name"] for row in there.list("text", "given")] == ["given"]
    assert len(list((there.layout.damaged / "text").iterdir())) == 1
    assert pushed(here, there).of("copy") == []


def test_what_was_removed_there_and_comes_again_is_told(here, there):
    made = here.resolve("joined/made")
    pushed(here, there)
    there.remove(made, reason="asked for by the author")

    (left,) = pushed(here, there, dry_run=True).restored

    assert left.record.ref == made
    assert "asked for by the author" in left.words
    assert not there.holds(made)
    assert [each.record.ref for each in pushed(here, there).restored] == [made]
    assert there.holds(made)
    assert pushed(here, there).restored == []


def test_a_damaged_file_is_refused_before_anything_is_published(here, there):
    (here.path(here.resolve("text/given")) / "text.txt").write_bytes(b"x" * 6)
    with pytest.raises(StoreError, match=r"text\.txt is not what was published"):
        pushed(here, there, "joined/made")
    assert list(there.layout.artifacts()) == []
    assert there.verify() == []


def test_an_artifact_with_other_content_there_stays(here, there):
    ref = here.resolve("text/given")
    pushed(here, there, "text/given")
    record = there.record(ref).model_copy(update={"content_digest": "0" * 64})
    (there.layout.artifact(ref.kind, ref.fingerprint) / "record.json").write_bytes(encode_record(record))
    assert names(pushed(here, there).of("other content")) == ["given"]
    assert there.read(ref.kind, ref.fingerprint).content_digest == "0" * 64


def test_of_a_removed_input_the_tombstone_comes_along(here, there):
    given = here.resolve("text/given")
    here.remove(here.resolve("joined/made"))
    here.remove(given)
    here.realize(ask("given"))
    made = here.realize(ask_joined("made", given)).ref
    remove_one(here.layout, here.record(given), stays=lambda leases, fingerprint: False)
    moved = pushed(here, there, "joined/made")
    assert (names(moved.of("removed")), names(moved.of("copy"))) == (["given"], ["made"])
    assert there.past("text", given.fingerprint).content_digest == given.content_digest
    assert there.holds(made)


@pytest.mark.objects
def test_a_bucket_that_lost_a_file_gets_it_back(here, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "cache"))
    away = Store.open(f"{bucket.url}/team")
    pushed(here, away)
    keys = bucket.keys()
    lost = next(key for key in keys if key.startswith("team/files/joined/"))
    bucket.delete(lost)

    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "another machine's"))
    away = Store.open(f"{bucket.url}/team")
    moved = pushed(here, away)

    assert [problem.artifact for problem in moved.damaged] == ["joined/made@v1"]
    assert set(keys) <= {*bucket.keys()}
    assert away.verify() == []
    assert pushed(here, away).of("copy") == []


@pytest.mark.objects
def test_an_alias_that_another_push_gave_meanwhile_stays(here, bucket, tmp_path, monkeypatch):
    """The index of the bucket was listed before; so it was at the start of a push that takes an hour."""
    own = Store.open(tmp_path / "own")
    own.tag(own.realize(ask_joined("made", own.realize(ask("own", text="z")).ref)).ref, "prod")
    here.tag(here.resolve("joined/made"), "prod")
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "one machine's"))
    away = Store.open(f"{bucket.url}/team")
    cargo = cargo_of(here, ())
    assert away.names.aliases("joined", "made") == {}
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "another machine's"))
    assert pushed(own, Store.open(f"{bucket.url}/team")).aliases == ["joined/made@prod"]

    moved = move(here, away, cargo, str)

    assert (moved.aliases, moved.kept) == ([], ["joined/made@prod"])
    assert away.resolve("joined/made@prod") == own.resolve("joined/made")
    assert away.verify() == []


@pytest.mark.objects
def test_a_pull_leaves_a_bucket_as_it_is_though_a_file_is_damaged(here, there, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "cache"))
    pushed(here, Store.open(f"{bucket.url}/team"))
    before = bucket.keys()
    bucket.put(next(key for key in before if key.startswith("team/files/joined/")), b"xyz!")
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "another machine's"))
    away = Store.open(f"{bucket.url}/team")

    for _ in "twice":
        with pytest.raises(StoreError, match=r"joined/made@v1: .*text\.txt .*; push .* that has it sound"):
            pushed(away, there)

    assert bucket.keys() == before
    assert there.verify() == []
    assert pushed(here, away).damaged != []
    assert "made" in names(pushed(away, there).of("copy"))
    assert there.verify() == []


@pytest.mark.objects
def test_a_push_that_was_cut_sends_no_large_file_twice(here, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOKMILL_RETRY_SECONDS", "0.2")
    here.realize(ask("large", times=1_500_000))
    away = Store.open(f"{bucket.url}/team")
    fault = bucket.fault("answer", method="PUT", key="*files/*first.txt", times=None)
    with pytest.raises(StoreError, match="text/large"):
        pushed(here, away, "text/large")
    before = len(bucket.requests("P*", "*files/*text.txt"))
    fault.release()

    pushed(here, away, "text/large")

    assert before > 0
    assert len(bucket.requests("P*", "*files/*text.txt")) == before
    assert away.verify() == []
