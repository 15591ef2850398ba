"""A catalog of another version is made again."""

import duckdb
import pytest

from tests.test_tasks.store_stages import ask, catalog_rows
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.tables import VERSION


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


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("work", ["query", "publish"])
def test_a_catalog_of_another_version_is_made_again_with_a_message(tmp_path, work, step):
    told = []
    store = opened(tmp_path / "store", told)
    store.realize(ask("web/0", text="a"))
    before = catalog_rows(store)
    give_version(store, VERSION + step)
    if work == "publish":
        store.catalog.sync()
    assert catalog_rows(store) == before
    assert version_of(store.catalog.path) == (VERSION,)
    (said,) = told
    assert f"its version is {VERSION + step} and not {VERSION}" in said


def test_an_earlier_catalog_that_may_not_be_replaced_still_answers(tmp_path):
    store = opened(tmp_path / "store", [])
    store.realize(ask("web/0", text="a"))
    give_version(store, VERSION - 1)
    store.catalog.lock_path.unlink(missing_ok=True)
    store.catalog.lock_path.mkdir(parents=True)  # no lock can be taken
    assert [row["name"] for row in store.list()] == ["web/0"]
    assert version_of(store.catalog.path) == (VERSION - 1,)
