"""The catalog follows the files: golden rows, syncs, rebuilds, breakage, and others who hold it."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, catalog_rows, stage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Provenance, RunArtifact, Store, digest_bytes
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.record import FORMAT_VERSION
from tokmill.tasks.store.runs import Begun

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store")


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


def test_versions_are_listed_with_their_aliases(filled):
    assert [(row["kind"], row["name"], row["label"], row["aliases"]) for row in filled.list()] == [
        ("joined", "all", "v1", []),
        ("text", "web/0", "v1", ["prod"]),
        ("text", "web/1", "v1", []),
    ]
    assert [row["name"] for row in filled.list(kind="text")] == ["web/0", "web/1"]
    assert [row["kind"] for row in filled.list(name="all")] == ["joined"]
    assert filled.list("text", "all") == []
    assert json.loads(json.dumps(filled.list()))[1]["num_bytes"] == 5


def test_a_rebuild_gives_the_same_rows(filled, told):
    before = catalog_rows(filled)
    filled.catalog.rebuild()
    assert catalog_rows(filled) == before
    assert told == []


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


def test_a_record_that_cannot_be_read_is_told_and_leaves_the_others(filled, told):
    place = filled.path(filled.resolve("text/web/0"))
    (place / "record.json").write_text("{")
    shutil.copytree(filled.path(filled.resolve("text/web/1")), place.with_name("0" * 16))
    assert [row["name"] for row in filled.list()] == ["all", "web/1"]
    assert "leaves out text/0000000000000000/record.json" in told[-1] + told[-2]
    assert f"leaves out text/{place.name}/record.json" in told[-1] + told[-2]


# -- runs -------------------------------------------------------------------------------------------------


def test_a_run_that_failed_keeps_why(store):
    store.catalog.add_run("r", begun=Begun(profile="p", provenance=Provenance(user="me")))
    store.catalog.finish_run("r", state="failed", message="mix: too little text")
    found = store.catalog.query("SELECT profile, state, message, user_name FROM runs")
    assert found == [
        {"profile": "p", "state": "failed", "message": "mix: too little text", "user_name": "me"}
    ]


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "x" * 64, "a b"])
def test_run_ids_that_cannot_be_files(store, run_id):
    with pytest.raises(StoreError, match="run id"):
        store.catalog.add_run(run_id)


def test_a_run_that_never_began_cannot_end(store):
    with pytest.raises(StoreError, match="there is no run r"):
        store.catalog.finish_run("r", state="completed")
