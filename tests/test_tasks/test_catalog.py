"""The catalog follows the files: golden rows, what is new, and tables that artifacts bring along."""

import hashlib
import json
import os
import shutil
import time

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, catalog_rows, stage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Provenance, RunArtifact, Store, digest_bytes
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.record import FORMAT_VERSION
from tokmill.tasks.store.runs import Begun, Found


@pytest.fixture
def told():
    return []


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with two texts, one of them tagged, a joined text and a run."""
    store = Store.open(tmp_path_factory.mktemp("original"))
    store.catalog.add_run("run-1", begun=Begun(profile="smoke", parameters={"pack": {"length": 8}}))
    provenance = Provenance(git_commit="c0ffee", git_dirty=True, user="me", flow_run_id="run-1")
    one = store.realize(ask("web/0", text="ab", times=2), provenance=provenance).ref
    two = store.realize(ask("web/1", text="c")).ref
    joined = store.realize(ask_joined("all", one, two))
    store.tag(one, "prod")
    items = [RunArtifact(task="join", ref=joined.ref, how=joined.how)]
    store.catalog.finish_run("run-1", state="completed", found=Found(items))
    return store


@pytest.fixture
def filled(original, tmp_path, told):
    """A copy of `original`, whose catalog tells `told`."""
    store = Store.open(shutil.copytree(original.root, tmp_path / "store"))
    store.catalog = Catalog(store.layout, report=told.append)
    return store


def names_of(store, kind=None):
    return [row["name"] for row in store.list(kind)]


def number_of(kind, ref):
    """The number by which lineage knows a content."""
    digest = hashlib.blake2b(f"{kind}/{ref.content_digest}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def test_rows_by_hand(filled):
    rows = catalog_rows(filled)
    one, two, joined = map(filled.resolve, ("text/web/0", "text/web/1", "joined/all"))

    def of(table, ref, skip=1):
        return [tuple(row.values())[skip:] for row in rows[table] if row["fingerprint"] == ref.fingerprint]

    (artifact,) = [row for row in rows["artifacts"] if row["fingerprint"] == one.fingerprint]
    times = {column: artifact.pop(column) for column in ("started", "ended", "seconds", "peak_bytes")}
    assert times["started"] < times["ended"]
    assert artifact == one.model_dump() | {
        "label": "v1",
        "record_digest": filled.record(one).record_digest,
        "stage": "write",
        "stage_version": 1,
        "num_files": 2,
        "num_bytes": 5,
        "payload": json.dumps(filled.record(one).payload, sort_keys=True, separators=(",", ":")),
        "params": '{"text":"ab","times":2}',
        "git_commit": "c0ffee",
        "git_dirty": True,
        "user_name": "me",
        "command": "",
        "run_id": "run-1",
        "flow_run_id": "run-1",
        "deployment_id": None,
        "format_version": FORMAT_VERSION,
        "content_id": number_of("text", one),
    }
    assert of("inputs", joined) == [
        (
            *(*used, ref.content_digest, "text", ref.name, ref.fingerprint, None, None),
            *(number_of("text", ref), number_of("joined", joined)),
        )
        for ref, used in ((one, ("first", None)), (two, ("rest", 0)))
    ]
    assert of("files", one) == [
        ("parts/first.txt", 1, digest_bytes(b"a")),
        ("text.txt", 4, digest_bytes(b"abab")),
    ]
    assert of("metrics", one) == [("num_chars", 4.0, "4")]
    assert of("accounts", one) == [
        ("web", "documents", "added", "end", 1),
        ("web", "documents", "became", "end", 1),
        ("web", "documents", "became", "kept", 2),
        ("web", "documents", "in", "in", 2),
    ]
    labels = ["joined/all@v1", "text/web/0@v1", "text/web/1@v1"]
    assert [(row["key"], row["number"]) for row in rows["labels"]] == [(key, 1) for key in labels]
    assert [(row["key"], row["fingerprint"]) for row in rows["aliases"]] == [
        ("text/web/0@prod", one.fingerprint)
    ]
    (run,) = rows["runs"]
    assert [run[name] for name in ("run_id", "profile", "state", "message", "parameters")] == [
        *("run-1", "smoke", "completed", "", '{"pack":{"length":8}}')
    ]
    assert run["started"] <= run["ended"]
    (item,) = rows["run_artifacts"]
    assert tuple(item.values()) == ("run-1", 1, 0, "join", *joined.model_dump().values(), "made", None, None)


def test_what_was_lost_and_made_again_under_another_name_has_both(tmp_path):
    store = Store.open(tmp_path / "store")
    ref = store.realize(ask("first", text="x")).ref
    store.list()
    shutil.rmtree(store.path(ref))
    store.realize(ask("second", text="x"))
    assert [(row["name"], row["label"]) for row in store.list()] == [("first", "v1"), ("second", "v1")]


# -- what is new ------------------------------------------------------------------------------------------


def aged(store):
    """Make every folder of the store look unchanged for a while, and have the catalog see it so."""
    for folder in [path for path in store.root.rglob("*") if path.is_dir()]:
        os.utime(folder, (1_000_000_000, 1_000_000_000))
    store.catalog.rebuild()


@pytest.mark.parametrize("old", [False, True])
def test_what_is_new_is_seen_as_a_rebuild_would_give_it(filled, old):
    if old:
        aged(filled)
    new = filled.realize(ask("web/2", text="d")).ref
    filled.tag(new, "prod")
    filled.catalog.add_run("run-2", profile="other")
    filled.label(new, "second-name")
    shutil.rmtree(filled.path(filled.resolve("joined/all")))
    (filled.root / "aliases" / "text" / "web" / "0" / "@prod").unlink()
    updated = catalog_rows(filled)
    assert names_of(filled) == ["second-name", "web/0", "web/1", "web/2"]
    assert [row["name"] for row in updated["aliases"]] == ["web/2"]
    filled.catalog.rebuild()
    assert catalog_rows(filled) == updated


def test_a_folder_whose_time_may_come_twice_is_looked_over_again(filled):
    ref, folder = filled.realize(ask("web/2", text="d")).ref, filled.root / "text"
    later = time.time_ns() + 60_000_000_000  # a change at the same tick of the clock would leave this time
    os.utime(folder, ns=(later, later))
    filled.list()
    shutil.rmtree(filled.path(ref))
    os.utime(folder, ns=(later, later))
    assert "web/2" not in names_of(filled)


def test_a_record_that_could_not_be_read_is_tried_again(filled, told):
    place = filled.path(filled.resolve("text/web/0")) / "record.json"
    sound = place.read_bytes()
    place.write_text("{")
    aged(filled)
    for _ in range(2):
        told.clear()
        assert "web/0" not in names_of(filled)
        assert ["text/" in line and "record is damaged" in line for line in told] == [True]
    place.write_bytes(sound)
    assert "web/0" in names_of(filled)


def test_a_question_where_nothing_is_new_writes_nothing(filled):
    filled.list()
    written = filled.catalog.path.stat().st_ino
    filled.list()
    assert filled.catalog.path.stat().st_ino == written


def test_a_label_of_a_process_that_was_killed_before_it_published_is_seen_by_who_looks_next(filled):
    aged(filled)
    Names(filled.layout).reserve("text", "web/0", "f" * 64, announce=False)
    (filled.root / ".tmp" / "1-dead" / "out").mkdir(parents=True)
    rows = catalog_rows(filled)
    filled.catalog.rebuild()
    assert catalog_rows(filled) == rows
    assert len(rows["labels"]) == 4
    assert list((filled.root / ".tmp").iterdir()) == []


def test_an_artifact_that_is_being_copied_into_the_store_is_found_when_its_record_comes(filled, tmp_path):
    other = Store.open(tmp_path / "other")
    ref = other.realize(ask("elsewhere", text="e")).ref
    place = filled.layout.artifact("text", ref.fingerprint)
    shutil.copytree(other.path(ref), place, ignore=lambda folder, names: ["record.json"])
    aged(filled)
    assert names_of(filled, "text") == ["web/0", "web/1"]
    shutil.copy(other.path(ref) / "record.json", place)
    assert names_of(filled, "text") == ["elsewhere", "web/0", "web/1"]


# -- tables that artifacts bring --------------------------------------------------------------------------


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
            file = out / "catalog" / f"{table}.parquet"
            if isinstance(columns, bytes):
                file.write_bytes(columns)
            else:
                parquet.write_table(pa.table(columns), file)
        return Outcome({})

    return Request(stage_of(run, kind="audit"), name, WriteParams(text=repr((name, tables))), {})


def test_brought_tables_have_all_columns_and_go_with_their_artifacts(store):
    one = store.realize(bring("one", tokens={"id": pa.array([1], pa.int32())})).ref
    many = {"text": ["b"], "id": pa.array([2**40], pa.int64())}
    two = store.realize(bring("two", tokens=many, sources={"name": ["web"]})).ref
    three = store.realize(bring("three", tokens={"id": pa.array([3], pa.int32())})).ref

    def tokens():
        rows = store.catalog.query("SELECT fingerprint, id, text FROM tokens ORDER BY id")
        return [tuple(row.values()) for row in rows]

    rows = [(one.fingerprint, 1, None), (three.fingerprint, 3, None), (two.fingerprint, 2**40, "b")]
    assert tokens() == rows
    assert store.catalog.query("FROM sources") == [{"fingerprint": two.fingerprint, "name": "web"}]
    store.catalog.rebuild()
    assert tokens() == rows
    shutil.rmtree(store.path(two))
    assert [row["id"] for row in store.catalog.query("SELECT id FROM tokens ORDER BY id")] == [1, 3]
    written = store.catalog.path.stat().st_mtime_ns
    assert store.catalog.query("SELECT count(*) AS n FROM tokens") == [{"n": 2}]
    assert store.catalog.path.stat().st_mtime_ns == written
    with pytest.raises(StoreError, match="sources does not exist"):
        store.catalog.query("FROM sources")


def test_a_damaged_page_stops_no_question(store, told):
    """The file's footer is whole, so that only reading the rows fails."""
    request = bring("one", tokens={"text": [f"word {number}" for number in range(1000)]})
    ref = store.realize(request).ref
    other = store.realize(bring("two", tokens={"text": ["x"]}, sources={"name": ["web"]})).ref
    path = store.path(ref) / "catalog" / "tokens.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 400 + data[404:])
    store.catalog.rebuild()
    assert [row["fingerprint"] for row in store.list()] == [ref.fingerprint, other.fingerprint]
    assert "the catalog leaves the table tokens as it was" in told[0]
    assert store.catalog.query("FROM sources") == [{"fingerprint": other.fingerprint, "name": "web"}]
    assert [problem.path for problem in store.verify()] == ["catalog/tokens.parquet"]
    store.realize(request, verify="full")
    assert store.catalog.query("SELECT count(*) AS n FROM tokens") == [{"n": 1001}]


def test_a_broken_table_leaves_the_rows_of_the_others(store, told):
    one, _ = (store.realize(bring(name, tokens={"text": [name]})).ref for name in ("one", "two"))
    path = store.path(one) / "catalog" / "tokens.parquet"
    path.write_bytes(path.read_bytes()[:-8])
    store.catalog.rebuild()
    assert f"the catalog leaves out {path}" in told[0]
    assert store.catalog.query("SELECT text FROM tokens") == [{"text": "two"}]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"artifacts": {"id": [1]}}, r"catalog/artifacts\.parquet: the folder holds <table>\.parquet only"),
        ({"catalog_files": {"id": [1]}}, "none of"),
        ({"a-b": {"id": [1]}}, "matches"),
        ({"tokens": {"fingerprint": ["x"]}}, "has a column 'fingerprint', which the catalog adds"),
        ({"tokens": b"id,text"}, r"catalog/tokens\.parquet cannot be read as Parquet"),
    ],
)
def test_tables_that_the_catalog_could_not_take_are_not_published(store, tables, message):
    with pytest.raises(StoreError, match=message):
        store.realize(bring("one", **tables))
    assert list(store.layout.artifacts()) == []
