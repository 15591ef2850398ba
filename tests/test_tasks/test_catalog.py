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
from tokmill.tasks.store.runs import Begun


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
    store.catalog.finish_run("run-1", state="completed", artifacts=items)
    return store


@pytest.fixture
def filled(original, tmp_path, told):
    """A copy of `original`, whose catalog tells `told`."""
    store = Store.open(shutil.copytree(original.root, tmp_path / "store"))
    store.catalog = Catalog(store.layout, report=told.append)
    return store


def number_of(kind, ref):
    """The number by which lineage knows a content."""
    digest = hashlib.blake2b(f"{kind}/{ref.content_digest}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def test_rows_by_hand(filled):
    rows = catalog_rows(filled)
    one, two = filled.resolve("text/web/0"), filled.resolve("text/web/1")
    joined = filled.resolve("joined/all")
    (artifact,) = [row for row in rows["artifacts"] if row["fingerprint"] == one.fingerprint]
    times = {column: artifact.pop(column) for column in ("started", "ended", "seconds", "peak_bytes")}
    assert times["started"] < times["ended"]
    assert artifact == {
        "fingerprint": one.fingerprint,
        "kind": "text",
        "name": "web/0",
        "label": "v1",
        "content_digest": one.content_digest,
        "record_digest": filled.record(one).record_digest,
        "stage": "write",
        "stage_version": 1,
        "num_files": 2,
        "num_bytes": 5,
        "payload": json.dumps(filled.record(one).payload, sort_keys=True, separators=(",", ":")),
        "params": '{"text":"ab","times":2,"unaccounted":0}',
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
    assert [tuple(row.values()) for row in rows["inputs"] if row["fingerprint"] == joined.fingerprint] == [
        (joined.fingerprint, *used, None, None, number_of("text", ref), number_of("joined", joined))
        for ref, used in (
            (one, ("first", None, one.content_digest, "text", "web/0", one.fingerprint)),
            (two, ("rest", 0, two.content_digest, "text", "web/1", two.fingerprint)),
        )
    ]
    assert [tuple(row.values())[1:] for row in rows["files"] if row["fingerprint"] == one.fingerprint] == [
        ("parts/first.txt", 1, digest_bytes(b"a")),
        ("text.txt", 4, digest_bytes(b"abab")),
    ]
    assert {tuple(row.values()) for row in rows["metrics"]} == {
        (one.fingerprint, "num_chars", 4.0, "4"),
        (two.fingerprint, "num_chars", 1.0, "1"),
        (joined.fingerprint, "num_parts", 2.0, "2"),
    }
    assert [tuple(row.values())[1:] for row in rows["accounts"] if row["fingerprint"] == one.fingerprint] == [
        ("web", "documents", "became", "kept", 2),
        ("web", "documents", "in", "in", 2),
    ]
    assert [(row["key"], row["number"]) for row in rows["labels"]] == [
        ("joined/all@v1", 1),
        ("text/web/0@v1", 1),
        ("text/web/1@v1", 1),
    ]
    assert [(row["key"], row["fingerprint"]) for row in rows["aliases"]] == [
        ("text/web/0@prod", one.fingerprint)
    ]
    (run,) = rows["runs"]
    assert (run["run_id"], run["profile"], run["state"], run["message"]) == (
        "run-1",
        "smoke",
        "completed",
        "",
    )
    assert run["parameters"] == '{"pack":{"length":8}}'
    assert run["started"] <= run["ended"]
    assert [tuple(row.values()) for row in rows["run_artifacts"]] == [
        (
            "run-1",
            1,
            0,
            "join",
            "joined",
            "all",
            joined.fingerprint,
            joined.content_digest,
            "made",
            None,
            None,
        )
    ]


def test_metrics_keep_their_type(store):
    def run(params, *, out):
        return Outcome({"count": 2**60 + 1, "ratio": 0.5, "word": "x", "flag": True})

    store.realize(Request(stage_of(run), "n", WriteParams(), {}))
    found = store.catalog.query("SELECT name, value, text FROM metrics ORDER BY name")
    assert [tuple(row.values()) for row in found] == [
        ("count", float(2**60), "1152921504606846977"),
        ("flag", None, "true"),
        ("ratio", 0.5, "0.5"),
        ("word", None, "x"),
    ]


def test_a_sync_takes_in_and_drops_what_changed_on_disk(filled, tmp_path):
    before = catalog_rows(filled)
    place = filled.path(filled.resolve("text/web/1"))
    place.rename(tmp_path / "away")
    assert [row["name"] for row in filled.list()] == ["all", "web/0"]
    (tmp_path / "away").rename(place)
    shutil.rmtree(filled.root / "aliases")
    assert catalog_rows(filled) == {**before, "aliases": []}


def test_an_artifact_copied_from_another_store_gets_its_label_back(filled, tmp_path):
    ref = filled.resolve("text/web/0")
    other = Store.open(tmp_path / "other")
    shutil.copytree(filled.path(ref), other.layout.artifact("text", ref.fingerprint))
    assert [(row["name"], row["label"]) for row in other.list()] == [("web/0", "v1")]
    assert other.resolve("text/web/0@v1") == ref
    taken = Store.open(tmp_path / "taken")
    taken.realize(ask("web/0", text="another"))
    shutil.copytree(filled.path(ref), taken.layout.artifact("text", ref.fingerprint))
    assert [(row["name"], row["label"]) for row in taken.list()] == [("web/0", "v1"), ("web/0", "v2")]
    assert taken.resolve("text/web/0@v2") == ref


def test_what_was_lost_and_made_again_under_another_name_has_both(tmp_path):
    store = Store.open(tmp_path / "store")
    ref = store.realize(ask("first", text="x")).ref
    store.catalog.rebuild()
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
    updated = catalog_rows(filled)
    assert [row["name"] for row in filled.list()] == ["second-name", "web/0", "web/1", "web/2"]
    filled.catalog.rebuild()
    assert catalog_rows(filled) == updated


def test_a_folder_whose_time_may_come_twice_is_looked_over_again(filled):
    ref, folder = filled.realize(ask("web/2", text="d")).ref, filled.root / "text"
    later = time.time_ns() + 60_000_000_000  # a change at the same tick of the clock would leave this time
    os.utime(folder, ns=(later, later))
    filled.catalog.rebuild()
    shutil.rmtree(filled.path(ref))
    os.utime(folder, ns=(later, later))
    assert "web/2" not in {row["name"] for row in filled.list()}


def test_a_record_that_could_not_be_read_is_tried_again(filled):
    place = filled.path(filled.resolve("text/web/0")) / "record.json"
    sound = place.read_bytes()
    place.write_text("{")
    aged(filled)
    assert "web/0" not in {row["name"] for row in filled.list("text")}
    place.write_bytes(sound)
    assert "web/0" in {row["name"] for row in filled.list("text")}


def test_a_question_where_nothing_is_new_writes_nothing(filled):
    filled.list()
    written = filled.catalog.path.stat().st_ino
    filled.list()
    assert filled.catalog.path.stat().st_ino == written


def test_a_second_name_alone_is_seen(filled):
    aged(filled)
    filled.label(filled.resolve("text/web/0"), "second")
    assert [row["label"] for row in filled.list(name="second")] == ["v1"]


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
    assert [row["name"] for row in filled.list("text")] == ["web/0", "web/1"]
    shutil.copy(other.path(ref) / "record.json", place)
    assert [row["name"] for row in filled.list("text")] == ["elsewhere", "web/0", "web/1"]


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
