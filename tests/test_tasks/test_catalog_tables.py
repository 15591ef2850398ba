"""Tables that artifacts bring along in `catalog/*.parquet`."""

import shutil

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.test_tasks.store_stages import WriteParams, catalog_rows, stage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(tmp_path, told):
    """A store whose catalog tells `told`."""
    store = Store.open(tmp_path / "store")
    store.catalog = Catalog(store.layout, report=told.append)
    return store


def bring(name="audit", **tables):
    """A request for an artifact with `catalog/<table>.parquet` for each table."""

    def run(params, *, out):
        (out / "catalog").mkdir()
        for table, columns in tables.items():
            parquet.write_table(pa.table(columns), out / "catalog" / f"{table}.parquet")
        return Outcome({})

    return Request(stage_of(run, kind="audit"), name, WriteParams(text=repr((name, tables))), {})


def extra(store, table):
    found = store.catalog.query(f"SELECT * FROM {table} ORDER BY ALL")
    return [tuple(row.values())[1:] for row in found]


def test_brought_tables_are_indexed_by_fingerprint(store):
    one = store.realize(bring("one", tokens={"id": [1, 2], "text": ["a", "b"]})).ref
    two = store.realize(bring("two", tokens={"id": [3], "text": ["c"]}, sources={"name": ["web"]})).ref
    rows = catalog_rows(store, "tokens", "sources")
    assert sorted(tuple(row.values()) for row in rows["tokens"]) == sorted(
        [(one.fingerprint, 1, "a"), (one.fingerprint, 2, "b"), (two.fingerprint, 3, "c")]
    )
    assert rows["sources"] == [{"fingerprint": two.fingerprint, "name": "web"}]
    store.catalog.rebuild()
    again = catalog_rows(store, "tokens", "sources")
    assert again == rows


def test_a_brought_table_with_other_columns_widens_the_table(store):
    store.realize(bring("one", tokens={"id": pa.array([1], pa.int32())}))
    store.realize(bring("two", tokens={"text": ["b"], "id": pa.array([2**40], pa.int64())}))
    store.realize(bring("three", tokens={"id": pa.array([3], pa.int32())}))
    columns = ["fingerprint", "id", "text"]
    rows = store.catalog.query("SELECT id, text FROM tokens ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(1, None), (3, None), (2**40, "b")]
    before = store.catalog.query("SELECT * FROM tokens ORDER BY ALL")
    assert sorted(before[0]) == columns
    store.catalog.rebuild()
    assert store.catalog.query("SELECT * FROM tokens ORDER BY ALL") == before


def test_a_brought_table_goes_with_its_artifact(store):
    one = store.realize(bring("one", tokens={"id": [1]})).ref
    two = store.realize(bring("two", tokens={"id": [2]})).ref
    assert extra(store, "tokens") == [(1,), (2,)] or extra(store, "tokens") == [(2,), (1,)]
    shutil.rmtree(store.path(one))
    assert extra(store, "tokens") == [(2,)]
    shutil.rmtree(store.path(two))
    with pytest.raises(StoreError, match="tokens does not exist"):
        extra(store, "tokens")


def test_a_brought_table_that_is_damaged_is_told_and_left_out(store, told):
    ref = store.realize(bring("one", tokens={"id": [1]})).ref
    store.realize(bring("two", tokens={"id": [2]}))
    path = store.path(ref) / "catalog" / "tokens.parquet"
    path.write_bytes(b"x" * path.stat().st_size)
    store.catalog.rebuild()
    assert extra(store, "tokens") == [(2,)]
    assert "leaves out" in told[0]
    assert "tokens.parquet" in told[0]


def test_a_damaged_page_stops_no_question(store, told):
    """The file's footer is whole, so that only reading the rows fails."""
    ref = store.realize(bring("one", tokens={"text": [f"word {number}" for number in range(1000)]})).ref
    other = store.realize(bring("two", tokens={"text": ["x"]})).ref
    path = store.path(ref) / "catalog" / "tokens.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 400 + data[404:])
    store.catalog.rebuild()
    assert [row["fingerprint"] for row in store.list()] == [ref.fingerprint, other.fingerprint]
    assert "the catalog leaves the table tokens as it was" in told[0]
    assert [problem.path for problem in store.verify()] == ["catalog/tokens.parquet"]
    store.realize(bring("one", tokens={"text": [f"word {number}" for number in range(1000)]}), verify="full")
    assert len(extra(store, "tokens")) == 1001


def test_names_with_quotes_in_the_path_are_no_trouble(tmp_path):
    store = Store.open(tmp_path / "o'store")
    store.realize(bring("one", tokens={"id": [1]}))
    assert extra(store, "tokens") == [(1,)]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"artifacts": {"id": [1]}}, r"catalog/artifacts\.parquet: the folder holds <table>\.parquet only"),
        ({"catalog_files": {"id": [1]}}, "none of"),
        ({"Tokens": {"id": [1]}}, "matches"),
        ({"a-b": {"id": [1]}}, "matches"),
        ({"tokens": {"fingerprint": ["x"]}}, "has a column 'fingerprint', which the catalog adds"),
    ],
)
def test_tables_that_the_catalog_could_not_take_are_not_published(store, tables, message):
    with pytest.raises(StoreError, match=message):
        store.realize(bring("one", **tables))
    assert list(store.layout.artifacts()) == []


def test_a_file_that_is_no_parquet_is_not_published(store):
    def run(params, *, out):
        (out / "catalog").mkdir()
        (out / "catalog" / "tokens.parquet").write_text("x")
        return Outcome({})

    with pytest.raises(StoreError, match=r"catalog/tokens\.parquet cannot be read as Parquet"):
        store.realize(Request(stage_of(run), "n", WriteParams(), {}))
