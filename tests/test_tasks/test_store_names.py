"""How artifacts are called: labels, aliases, references; and where a store may lie."""

import json
import re

import pytest

from tests.hostile_names import HOSTILE
from tests.test_tasks.store_stages import WriteParams, ask, stage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.store import Store, read_record
from tokmill.tasks.store.disk import ProcessLock
from tokmill.tasks.store.names import inside
from tokmill.tasks.store.record import encode_record, parse_record, sealed
from tokmill.tasks.store.runs import read_run, run_path


def test_a_second_name_for_the_same_recipe_is_a_label_and_no_second_artifact(store):
    first = store.realize(ask("n", text="a"))
    store.realize(ask("m", text="b"))
    second = store.realize(ask("m", text="a"))
    assert second.cached
    assert second.ref == first.ref.model_copy(update={"name": "m"})
    assert store.resolve("text/m@v2") == store.resolve("text/m") == second.ref
    assert len(list(store.layout.artifacts())) == 2
    assert [(row["name"], row["label"]) for row in store.list()] == [("m", "v1"), ("m", "v2"), ("n", "v1")]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        *(("name", text) for text in ("", "a b", "a//b", "a/", "a@b", ".hidden", "ü", "x" * 201, "a\n")),
        *(("kind", text) for text in ("labels", "runs", "damaged", "Text", "a-b", "", ".tmp")),
        *(("alias", text) for text in ("latest", "v3", "", "a b", "a/b", "1st")),
    ],
)
def test_what_cannot_be_a_name_a_kind_or_an_alias(store, what, text):
    stage = stage_of(lambda params, *, out: None, kind=text if what == "kind" else "text")
    ref = store.realize(ask()).ref
    request = Request(stage, text if what == "name" else "n", WriteParams(), {})
    with pytest.raises(StoreError, match=f"{what} .* cannot be used"):
        store.tag(ref, text) if what == "alias" else store.realize(request)


def test_references_by_fingerprint(store):
    ref = store.realize(ask(text="a")).ref
    for length in (6, 16, 17, 64):
        assert store.resolve(ref.fingerprint[:length].upper()) == ref
    with pytest.raises(StoreError, match="has a fingerprint that begins with"):
        store.resolve(ref.fingerprint[:16] + ("0" if ref.fingerprint[16] != "0" else "1"))
    with pytest.raises(StoreError, match="at least 6"):
        store.resolve(ref.fingerprint[:5])


def test_a_prefix_that_fits_several_artifacts_names_them(store, monkeypatch):
    refs = [store.realize(ask(f"n{number}", text=str(number))).ref for number in range(2)]
    twin = refs[0].fingerprint[:8] + refs[1].fingerprint[8:16]
    place = store.layout.artifact("text", refs[1].fingerprint)
    place.rename(place.with_name(twin))
    record = read_record(place.with_name(twin))
    renamed = record.model_copy(update={"fingerprint": twin + record.fingerprint[16:]})
    (place.with_name(twin) / "record.json").write_bytes(encode_record(renamed))
    with pytest.raises(StoreError, match=r"fits 2 artifacts: .*text/n0@v1.*; use more digits"):
        store.resolve(refs[0].fingerprint[:8])


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("text/quikstart", r"there is no artifact text/quikstart in .*; did you mean text/quickstart\?"),
        ("txt/quickstart@v1", r"there is no txt/quickstart@v1; did you mean text/quickstart\?"),
        ("text/quickstart@v7", r"there is no text/quickstart@v7; did you mean v2 or v1\?"),
        ("text/quickstart@prd", r"there is no text/quickstart@prd; did you mean prod\?"),
        ("text/quickstart@zzz", r"there is no text/quickstart@zzz; it has v1, v2, prod"),
        ("quickstart", r"'quickstart' .*kind/name.*text/quickstart"),
        ("", "^'' .*kind/name"),
        ("text/a@b@c", "^'text/a@b@c' .*kind/name"),
        ("abcdef", "no artifact in .* has a fingerprint that begins with abcdef"),
    ],
)
def test_unknown_references_are_answered_with_the_nearest(store, reference, message):
    store.realize(ask("quickstart", text="a"))
    store.tag(store.realize(ask("quickstart", text="b")).ref, "prod")
    with pytest.raises(StoreError, match=message):
        store.resolve(reference)


# -- places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("s3://me:secret@bucket/x", "user name or password"),
        ("s3://bucket/x?versionId=1", "no query"),
        ("s3://", "names no bucket"),
        ("file://host/x", "names no host"),
        ("odd://b/x", "cannot be used"),
        ("github://b/x", "cannot be used"),
        ("~nobody-of-this-name/x", "neither a folder"),
        ("x" * 5000, "cannot be a folder: .*too long"),
        ("a\0b", "cannot be a folder: .*null"),
    ],
)
def test_places_that_are_no_store(location, rule):
    with pytest.raises(StoreError, match=rule) as refused:
        Store.open(location)

    assert "secret" not in str(refused.value)


def test_places_that_a_store_can_be_opened_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Store.open("some where").root == tmp_path / "some where"
    assert Store.open(tmp_path / "s").root == tmp_path / "s"
    assert Store.open(f"file://{tmp_path}/some%20where").root == tmp_path / "some where"
    assert list(tmp_path.iterdir()) == []


def test_a_store_may_be_reached_by_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "store")
    made = Store.open(tmp_path / "store").realize(ask()).ref
    assert Store.open(tmp_path / "link").read("text", made.fingerprint).ref == made


def test_a_store_can_be_moved_as_a_folder(store, tmp_path):
    ref = store.realize(ask()).ref
    store.tag(ref, "prod")
    store.root.rename(tmp_path / "moved")
    moved = Store.open(tmp_path / "moved")
    assert moved.lookup(ask(), verify="full") == ref == moved.resolve("text/one@prod")
    assert [row["aliases"] for row in moved.list()] == [["prod"]]


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_name_is_refused_wherever_a_path_is_made_of_it(tmp_path, name):
    store = Store.open(tmp_path / "store")
    store.realize(ask("n", text="a"))
    before = sorted(tmp_path.rglob("*"))
    for make in (
        lambda: inside(tmp_path, name, "x"),
        lambda: store.layout.artifact(name, "0" * 64),
        lambda: store.layout.artifact("text", name),
        lambda: store.layout.names("labels", name, "n"),
        lambda: store.layout.names("labels", "text", f"{name}/n"),
        lambda: store.names.restore("text", "n", name, "0" * 64),
        lambda: store.names.tag("text", "n", name, "0" * 64),
        lambda: store.resolve(f"text/{name}"),
        lambda: store.resolve(f"{name}/n@v1"),
        lambda: run_path(store.layout.runs, name),
    ):
        with pytest.raises(StoreError):
            make()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("field", ["kind", "name", "label", "fingerprint", "digest", "path"])
def test_a_record_with_a_hostile_name_is_refused_when_it_is_read(tmp_path, field):
    store = Store.open(tmp_path / "store")
    place = store.path(store.realize(ask("n", text="a")).ref)
    record = json.loads((place / "record.json").read_bytes())
    del record["record_digest"]
    for name in HOSTILE.values():
        for holder in (record, record["files"][0]):
            if field in holder:
                holder[field] = name
        data = sealed("record_digest", json.dumps(record, indent=1).encode() + b"\n")
        with pytest.raises(StoreError, match=rf"{field} cannot be read"):
            parse_record(place / "record.json", data)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_run_file_with_a_hostile_name_is_refused_when_it_is_read(tmp_path, name):
    path = tmp_path / "a-run.json"
    path.write_text(json.dumps({"run_id": name, "started": "2026-11-27T00:00:00Z"}))
    with pytest.raises(StoreError, match="cannot be read as a run"):
        read_run(path)


def test_a_run_file_brings_no_script_as_its_page(tmp_path):
    path = tmp_path / "a-run.json"
    for url in ("javascript:alert(1)", 'https://x/"><script>', "data:text/html,x", "file:///etc/passwd"):
        path.write_text(json.dumps({"run_id": "a", "started": "2026-11-27T00:00:00Z", "url": url}))
        with pytest.raises(StoreError, match="cannot be read as a run"):
            read_run(path)


@pytest.mark.parametrize("link", ["a file", "a folder"])
def test_a_link_in_an_artifact_is_not_followed(tmp_path, link):
    store = Store.open(tmp_path / "store")
    ref = store.realize(ask("n", text="a")).ref
    place, secret = store.path(ref), tmp_path / "secret"
    if link == "a file":
        secret.write_text("a")
        (place / "text.txt").unlink()
        (place / "text.txt").symlink_to(secret)
    else:
        (place / "parts").rename(secret)
        (place / "parts").symlink_to(secret)
    for follow in (store.path, store.place):
        with pytest.raises(StoreError, match="is a link"):
            follow(ref)


OWN_PLACES = [
    "runs",
    ".tmp",
    "leases",
    "text",
    "damaged/text",
    "labels/text",
    "removed/text",
    ".texts",
]
OWN_FILES = [".locks/a.lock", ".cache/digests.sqlite", "catalog.duckdb"]


@pytest.mark.parametrize("place", [*OWN_PLACES, ".prefect", *OWN_FILES])
def test_a_store_with_links_to_elsewhere_is_not_opened(tmp_path, place):
    """What is written, swept or collected through one would be written and removed there."""
    link = tmp_path / "store" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{re.escape(place)} is a link"):
        Store.open(tmp_path / "store")


def test_the_place_of_a_lock_is_never_a_link(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="cannot be taken"):
        ProcessLock(tmp_path / "lock").try_acquire()
    assert (tmp_path / "victim").read_text() == "kept"
