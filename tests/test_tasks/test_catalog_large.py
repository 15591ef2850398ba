"""A catalog is brought up to date by what is new, and a store is not listed to find it as it was."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, catalog_rows, stage_of
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.indexing import UNSURE, look_over, sure_times
from tokmill.tasks.store.labels import Names


def letters(params, *, out):
    """Bring a table to the catalog."""
    (out / "catalog").mkdir()
    pq.write_table(pa.table({"letter": list(params.text)}), out / "catalog" / "letters.parquet")
    return Outcome(metrics={})


LETTERS = stage_of(letters, "letters_of")


def brought(name, text):
    return Request(LETTERS, name, WriteParams(text=text), {})


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store")
    first, second = store.realize(ask("web/0", text="ab")).ref, store.realize(ask("web/1", text="c")).ref
    store.realize(ask_joined("all", first, second))
    store.realize(brought("one", "xy"))
    store.catalog.add_run("run-1")
    store.catalog.finish_run("run-1", state="completed")
    store.catalog.rebuild()
    return store


def aged(store):
    """Make every folder of the store look as if it had not changed for a while."""
    for folder in [path for path in store.root.rglob("*") if path.is_dir()]:
        os.utime(folder, (1_000_000_000, 1_000_000_000))
    store.catalog.sync()


def test_what_is_new_is_seen_as_a_rebuild_would_give_it(store):
    new = store.realize(ask("web/2", text="d")).ref
    store.realize(brought("two", "z"))
    store.tag(new, "prod")
    store.catalog.add_run("run-2", profile="other")
    store.label(new, "second-name")
    shutil.rmtree(store.path(store.resolve("joined/all")))
    updated = catalog_rows(store, "letters")
    assert [row["name"] for row in store.list()] == ["one", "two", "second-name", "web/0", "web/1", "web/2"]
    assert len(updated["letters"]) == 3
    store.catalog.rebuild()
    assert catalog_rows(store, "letters") == updated


def test_a_question_where_nothing_is_new_writes_nothing(store):
    store.list()
    written = store.catalog.path.stat().st_ino
    store.list()
    assert store.catalog.path.stat().st_ino == written


def test_a_changed_run_replaces_its_rows(store):
    store.catalog.add_run("run-1")
    states = store.catalog.query("SELECT attempt, state FROM runs ORDER BY attempt")
    assert states == [{"attempt": 1, "state": "completed"}, {"attempt": 2, "state": "running"}]


def test_a_table_of_an_artifact_that_is_gone_is_made_without_it(store):
    store.realize(brought("two", "z"))
    shutil.rmtree(store.path(store.resolve("letters_of/one")))
    assert [row["letter"] for row in store.catalog.query("FROM letters")] == ["z"]


class TestLooking:
    def trusted(self, store):
        (times,) = store.catalog.query("SELECT map_from_entries(list((part, time))) AS t FROM catalog_parts")
        return times["t"]

    def test_what_has_not_changed_is_not_looked_over(self, store):
        aged(store)
        look = look_over(store.layout, self.trusted(store))
        assert look.parts == {"aliases"}
        assert look.stamps == {}

    def test_a_publication_makes_its_own_kind_be_looked_over(self, store):
        aged(store)
        store.realize(ask("web/2", text="d"))
        assert look_over(store.layout, self.trusted(store)).parts == {"aliases", "text"}
        assert [row["label"] for row in store.list(name="web/2")] == ["v1"]

    def test_a_second_name_makes_the_labels_of_its_kind_be_looked_over(self, store):
        aged(store)
        store.label(store.resolve("text/web/0"), "second")
        assert look_over(store.layout, self.trusted(store)).parts == {"aliases", "labels/text"}
        assert [row["label"] for row in store.list(name="second")] == ["v1"]

    def test_a_label_of_a_process_that_was_killed_before_it_published_is_seen_by_who_looks_next(self, store):
        aged(store)
        Names(store.layout).reserve("text", "web/0", "f" * 64, announce=False)
        assert look_over(store.layout, self.trusted(store)).parts == {"aliases"}
        (store.root / ".tmp" / "1-dead" / "out").mkdir(parents=True)
        rows = catalog_rows(store)
        store.catalog.rebuild()
        assert catalog_rows(store) == rows
        assert len(rows["labels"]) == 5
        assert list((store.root / ".tmp").iterdir()) == []

    def test_a_folder_that_changed_within_the_tick_of_a_clock_is_not_trusted(self, store):
        store.realize(ask("web/2", text="d"))
        times = look_over(store.layout, {}).times
        assert sure_times(store.layout, times)["text"] == UNSURE

    def test_an_artifact_that_is_being_copied_into_the_store_is_found_when_its_record_comes(
        self, store, tmp_path
    ):
        other = Store.open(tmp_path / "other")
        ref = other.realize(ask("elsewhere", text="e")).ref
        place = store.layout.artifact("text", ref.fingerprint)
        shutil.copytree(other.path(ref), place, ignore=lambda folder, names: ["record.json"])
        aged(store)
        assert [row["name"] for row in store.list("text")] == ["web/0", "web/1"]
        shutil.copy(other.path(ref) / "record.json", place)
        assert [row["name"] for row in store.list("text")] == ["elsewhere", "web/0", "web/1"]

    def test_a_file_that_cannot_be_read_is_tried_again_every_time(self, store):
        told = []
        place = store.path(store.resolve("text/web/0")) / "record.json"
        sound = place.read_bytes()
        place.write_text("{")
        aged(store)
        store.catalog = Catalog(store.layout, report=told.append)
        assert [row["name"] for row in store.list("text")] == ["web/1"]
        assert "leaves out text/" in told[-1]
        place.write_bytes(sound)
        assert [row["name"] for row in store.list("text")] == ["web/0", "web/1"]


def test_folders_of_a_store_are_listed_by_kind_alone(store):
    """However many artifacts there are: the parts of a store are its kinds, and a few more."""
    assert {Path(part).parts[0] for part in look_over(store.layout, {}).times} == {
        *("joined", "letters_of", "text", "labels", "aliases", "runs")
    }
