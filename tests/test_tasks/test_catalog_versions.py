"""Catalogs of every earlier version become one of this version; one of a newer version is left alone.

`tests/golden/catalogs-before.zip` holds a small store for each form that the catalog ever had, made by the
code of that time: `1`; `2`, `2-how` and `2-attempts`, which had one number for three forms of the runs; `3`;
`4` and `5`, which have remarks on the run, too; `6`, `7` and `8`, which also have a removed artifact. Whoever
raises `VERSION` adds the one before.
"""

import os
import zipfile
from pathlib import Path

import duckdb
import pytest

from tests.test_tasks.store_stages import ask, catalog_rows
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.migrating import VERSION, backup_path

EARLIER = {"1": 1, "2": 2, "2-how": 2, "2-attempts": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8}
ARCHIVE = Path(__file__).parents[1] / "golden" / "catalogs-before.zip"


@pytest.fixture(params=EARLIER)
def earlier(request, tmp_path):
    """A store whose catalog has an earlier version, with that version."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{request.param}/")]
        archive.extractall(tmp_path, names)
    root = tmp_path / request.param
    with duckdb.connect(str(root / "catalog.duckdb"), read_only=True) as catalog:
        for path, mtime in catalog.execute("SELECT path, mtime_ns FROM catalog_files").fetchall():
            os.utime(root / path, ns=(mtime, mtime))  # an archive rounds times
    return opened(root, []), EARLIER[request.param]


def opened(root, told):
    store = Store.open(root)
    store.catalog = Catalog(store.layout, wait_seconds=0.1, report=told.append)
    return store


def version_of(path):
    with duckdb.connect(str(path), read_only=True) as catalog:
        return catalog.execute("SELECT version FROM catalog_version").fetchone()


def newer(store):
    """Give the store's catalog a version from the future."""
    store.list()
    with duckdb.connect(str(store.catalog.path)) as catalog:
        catalog.execute(f"UPDATE catalog_version SET version = {VERSION + 1}")


def test_there_is_a_catalog_of_every_earlier_version():
    assert sorted(set(EARLIER.values())) == list(range(1, VERSION))


def test_remarks_on_runs_outlive_a_migration(earlier):
    store, version = earlier
    said = store.catalog.query("SELECT action, text FROM run_annotations ORDER BY moment")
    remarks = [("tag", "winner"), ("note", "the best of May")]
    assert [(row["action"], row["text"]) for row in said] == (remarks if version >= 4 else [])


def test_tombstones_are_rows_after_a_migration(earlier):
    store, version = earlier
    removed = store.catalog.query("SELECT kind, name, label, user_name, reason FROM removed")
    left = {"kind": "text", "name": "web/9", "label": "v1", "user_name": "someone", "reason": ""}
    assert removed == ([left] if version >= 6 else [])


def test_a_query_migrates_an_earlier_catalog_and_keeps_it(earlier):
    store, version = earlier
    told = []
    store = opened(store.root, told)
    assert [row["name"] for row in store.list()] == ["all", "web/0", "web/1"]
    assert version_of(store.catalog.path) == (VERSION,)
    assert version_of(backup_path(store.catalog.path, version)) == (version,)
    assert len(told) == 1
    assert f"of version {version} and is brought to version {VERSION}" in told[0]
    assert str(backup_path(store.catalog.path, version)) in told[0]


def test_a_migrated_catalog_has_the_rows_of_a_rebuilt_one(earlier):
    store, _ = earlier
    migrated = catalog_rows(store, "letters")
    store.catalog.rebuild()
    assert catalog_rows(store, "letters") == migrated
    assert [row["state"] for row in migrated["runs"]] == ["completed"]
    assert [(row["name"], row["how"]) for row in migrated["run_artifacts"]] == [("all", "made")]
    assert len(migrated["letters"]) == 3
    assert store.verify() == []


def test_a_publication_migrates_an_earlier_catalog_too(earlier):
    store, version = earlier
    store.realize(ask("web/2", text="d"))
    store.catalog.sync()
    assert version_of(store.catalog.path) == (VERSION,)
    assert version_of(backup_path(store.catalog.path, version)) == (version,)
    assert [row["name"] for row in store.list()] == ["all", "web/0", "web/1", "web/2"]


def test_an_earlier_catalog_is_no_problem_of_the_store(earlier):
    store, version = earlier
    assert store.verify() == []
    assert version_of(store.catalog.path) == (version,)


def test_an_earlier_catalog_that_may_not_be_replaced_still_answers(earlier):
    store, version = earlier
    store.catalog.lock_path.parent.write_text("")  # no lock can be taken
    assert [row["name"] for row in store.list()] == ["all", "web/0", "web/1"]
    assert version_of(store.catalog.path) == (version,)


class TestANewerCatalog:
    @pytest.fixture
    def told(self):
        return []

    @pytest.fixture
    def store(self, tmp_path, told):
        store = opened(tmp_path / "store", told)
        store.realize(ask("web/0", text="a"))
        newer(store)
        return store

    def test_refuses_queries_and_says_what_to_do(self, store):
        with pytest.raises(StoreError, match=rf"version {VERSION + 1}.* up to {VERSION}: use the tokmill"):
            store.list()
        assert version_of(store.catalog.path) == (VERSION + 1,)

    def test_stops_no_publication_and_is_reported_once(self, store, told):
        refs = [store.realize(ask(f"web/{n}", text=str(n))).ref for n in range(1, 4)]
        store.catalog.register(store.path(refs[0]) / "record.json")
        store.catalog.register(store.path(refs[0]) / "record.json")
        assert all(store.holds(ref) for ref in refs)
        assert len([line for line in told if "use the tokmill that made it" in line]) == 1
        assert version_of(store.catalog.path) == (VERSION + 1,)

    def test_is_kept_when_the_user_rebuilds(self, store):
        store.catalog.rebuild()
        assert len(store.list()) == 1
        assert version_of(backup_path(store.catalog.path, VERSION + 1)) == (VERSION + 1,)
