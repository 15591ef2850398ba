"""A catalog of an earlier version is made again; one of a newer version is left alone."""

import duckdb
import pytest

from tests.test_tasks.store_stages import ask, catalog_rows
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.catalog_schema import VERSION


def opened(root, told):
    store = Store.open(root)
    store.catalog = Catalog(store.layout, wait_seconds=0.1, report=told.append)
    return store


def version_of(path):
    with duckdb.connect(str(path), read_only=True) as catalog:
        return catalog.execute("SELECT version FROM catalog_version").fetchone()


def give_version(store, version):
    store.list()
    with duckdb.connect(str(store.catalog.path)) as catalog:
        catalog.execute(f"UPDATE catalog_version SET version = {version}")
        catalog.execute("ALTER TABLE runs RENAME COLUMN state TO condition")


@pytest.mark.parametrize("work", ["query", "publish"])
def test_an_earlier_catalog_is_made_again_with_a_message(tmp_path, work):
    told = []
    store = opened(tmp_path / "store", told)
    store.realize(ask("web/0", text="a"))
    before = catalog_rows(store)
    give_version(store, VERSION - 1)
    if work == "publish":
        store.catalog.sync()
    assert catalog_rows(store) == before
    assert version_of(store.catalog.path) == (VERSION,)
    (said,) = told
    assert f"its version is {VERSION - 1} and not {VERSION}" in said


def test_an_earlier_catalog_that_may_not_be_replaced_still_answers(tmp_path):
    store = opened(tmp_path / "store", [])
    store.realize(ask("web/0", text="a"))
    give_version(store, VERSION - 1)
    store.catalog.lock_path.unlink(missing_ok=True)
    store.catalog.lock_path.mkdir(parents=True)  # no lock can be taken
    assert [row["name"] for row in store.list()] == ["web/0"]
    assert version_of(store.catalog.path) == (VERSION - 1,)


class TestANewerCatalog:
    @pytest.fixture
    def told(self):
        return []

    @pytest.fixture
    def store(self, tmp_path, told):
        store = opened(tmp_path / "store", told)
        store.realize(ask("web/0", text="a"))
        give_version(store, VERSION + 1)
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

    def test_is_replaced_when_the_user_rebuilds(self, store):
        store.catalog.rebuild()
        assert len(store.list()) == 1
        assert version_of(store.catalog.path) == (VERSION,)
