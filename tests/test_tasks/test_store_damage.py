"""A store believes no file: what was changed is found and made again, what leads out is not followed."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.test_tasks.store_stages import WriteParams, ask, catalog_rows, stage_of
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import digest_bytes, read_record
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.digest import FileEntry, content_digest
from tokmill.tasks.store.record import encode_record, parse_record

REQUEST = ask(text="abcd")


@pytest.fixture
def place(store):
    """The directory of a published artifact that the catalog knows, beside one that is left alone."""
    ref = store.realize(REQUEST).ref
    store.realize(ask("other", text="left alone"))
    assert len(store.list()) == 2
    return store.path(ref)


def problems_of(store):
    return [problem for problem in store.verify() if problem.artifact != "catalog"]


def rewritten(place, change):
    """Change a record by hand, and give it the digest of itself that fits."""
    document = json.loads((place / "record.json").read_bytes())
    document.pop("record_digest", None)
    change(document)
    body = (json.dumps(document, indent=1) + "\n").encode()
    seal = b'{\n "record_digest": "%s",\n' % digest_bytes(body).encode()
    (place / "record.json").write_bytes(seal + body.removeprefix(b"{\n"))


# -- one table of damages ---------------------------------------------------------------------------------


def unlink(path):
    path.unlink()


def truncate(path):
    path.write_text("")


def flip(path):
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def link(path):
    copy = path.rename(path.parents[1] / "elsewhere")
    path.symlink_to(copy)


def folder(path):
    path.unlink()
    path.mkdir()


def file_instead(path):
    shutil.rmtree(path)
    path.write_text("")


def dangling(path):
    shutil.rmtree(path)
    path.symlink_to(path.parent / "nowhere")


def loop(path):
    shutil.rmtree(path)
    path.symlink_to(path)


def edit(old, new):
    """Change bytes of a record whose digest of itself then no longer fits."""

    def change(path):
        changed, num_changes = re.subn(old, new, path.read_bytes(), count=1)
        assert num_changes == 1
        path.write_bytes(changed)

    return change


def forged(change):
    return lambda path: rewritten(path.parent, change)


def outside(name):
    """Have the record list a file elsewhere, with the content digest that fits."""

    def lead_out(document):
        document["files"][0]["path"] = name
        entries = [FileEntry.model_construct(**entry) for entry in document["files"]]
        document["content_digest"] = content_digest(entries)

    return forged(lead_out)


RECORDS = {
    "cut": lambda path: path.write_text("{"),
    "of another artifact": lambda path: path.write_bytes(
        encode_record(read_record(path.parent).model_copy(update={"fingerprint": "0" * 64}))
    ),
    "newer": forged(lambda document: document.update(format_version=4)),
    "nested": edit(rb'"text": ?"abcd"', b'"text": ' + b"[" * 50_000 + b"]" * 50_000),
    "other metric": edit(rb'"num_chars": ?4', b'"num_chars":5'),
    "other digest": edit(rb'(?<="record_digest": ")[0-9a-f]{64}', b"0" * 64),
    "size": forged(lambda document: document["files"][0].update(size_bytes=10**20)),
    "date": forged(lambda document: document["timings"].update(ended="2026-02-30T00:00:00Z")),
    "metric": forged(lambda document: document["metrics"].update(num_chars=float("inf"))),
    "large metric": forged(lambda document: document["metrics"].update(num_chars=10**400)),
    "payload": forged(lambda document: document["payload"].update(x=[[float("inf")]])),
    "stage version": forged(lambda document: document["payload"].update(version=10**20)),
    "file elsewhere": outside("../../outside"),
}
NO_FILES = (unlink, fifo, device, link, folder)
HARMS = {
    **{f"record {name}": ("record.json", harm) for name, harm in RECORDS.items()},
    **{f"{harm.__name__} {name}": (name, harm) for harm in NO_FILES for name in ("text.txt", "record.json")},
    **{f"{harm.__name__} text.txt": ("text.txt", harm) for harm in (truncate, flip)},
    "link parts": ("parts", link),
    **{harm.__name__: ("", harm) for harm in (file_instead, dangling, loop)},
}
QUICK = ("record cut", "unlink text.txt", "truncate text.txt", "link parts", "record other metric", "loop")


@pytest.mark.parametrize(
    "harm", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HARMS]
)
def test_whatever_is_damaged_is_told_set_aside_and_made_again(store, place, harm):
    name, do = HARMS[harm]
    os.mkfifo(store.root / "outside")  # who reads it waits for ever
    do(place / name)
    problems = problems_of(store)
    assert {problem.artifact for problem in problems} <= {"text/one@v1", f"text/{place.name}"}
    assert [problem.path for problem in problems if not problem.path.startswith(name)] == []
    assert problems
    told = []
    store.catalog = Catalog(store.layout, report=told.append)
    known = [] if name in {"record.json", ""} else ["one"]
    assert [row["name"] for row in store.list()] == [*known, "other"]
    assert bool(told) == (name == "record.json" and do is not unlink)
    assert all(line.startswith(f"the catalog leaves out text/{place.name}/record.json: ") for line in told)

    told = []
    again = store.realize(REQUEST, verify="full", report=told.append)

    assert again.how == "made"
    assert store.record(again.ref).label == "v1"
    aside = store.root / "damaged" / "text" / f"{place.name}-1"
    assert f"set aside as {aside}, and it will be made again" in told[0]
    assert store.verify() == []


def test_what_is_linked_from_a_damaged_artifact_is_damaged_too(store, place):
    def linked(params, *, out, whole):
        os.link(whole / "text.txt", out / "linked.txt")
        return Outcome(metrics={})

    flip(place / "text.txt")
    given = {"whole": store.realize(REQUEST).ref}
    ref = store.realize(Request(stage_of(linked), "two", WriteParams(), given)).ref
    (entry,) = read_record(store.path(ref)).files
    assert entry.digest == digest_bytes(b"abcd")
    assert {problem.artifact for problem in problems_of(store)} == {"text/one@v1", "text/two@v1"}


def test_verify_tells_what_is_odd_but_harmless_and_touches_nothing(store, place):
    (place / "dropping").write_text("")
    (store.root / "notes" / "mine").mkdir(parents=True)
    assert [str(problem) for problem in store.verify()] == ["text/one@v1: dropping: is not in the record"]
    assert store.lookup(REQUEST, verify="full").name == "one"


def test_verify_checks_the_record_against_itself_and_the_catalog(store, place):
    record = read_record(place)
    changes = {
        "payload": {**record.payload, "version": 2},
        "content_digest": "0" * 64,
        "accounts": [record.accounts[0].model_copy(update={"num_in": 4})],
    }
    (place / "record.json").write_bytes(encode_record(record.model_copy(update=changes)))
    *problems, of_catalog = sorted(store.verify(), key=lambda problem: problem.artifact == "catalog")
    assert [problem.message for problem in problems] == [
        "the fingerprint is not that of the payload",
        "the content digest is not that of the listed files",
        "the account of source 'web' in documents does not add up",
    ]
    assert of_catalog.path == f"text/{place.name}/record.json"


def test_a_forged_digest_is_found_by_the_catalog(store, place):
    rewritten(place, lambda document: document["metrics"].update(num_chars=5))
    (problem,) = store.verify()
    assert (problem.artifact, problem.path) == ("catalog", f"text/{place.name}/record.json")
    assert "the catalog has another record" in problem.message
    store.catalog.rebuild()
    assert store.verify() == []


def test_what_the_catalog_knows_and_the_store_has_no_longer(store, place):
    shutil.rmtree(place)
    (problem,) = store.verify()
    assert str(problem).startswith(f"catalog: text/{place.name}/record.json: ")
    assert len(store.list()) == 1
    store.catalog.rebuild()  # the query may have been answered beside a catalog that was just written
    assert store.verify() == []


@pytest.mark.parametrize("name", ["...", "..a", ".a", "a..", "a b", "a\nb", "é", "parts/.first"])
def test_names_that_only_look_odd_are_names(name):
    assert FileEntry(path=name, size_bytes=0, digest="0" * 64).path == name


def test_a_record_cannot_name_a_table_of_the_catalog(store, place):
    record = read_record(place)
    before = catalog_rows(store)
    for name in ("artifacts", "x; DROP TABLE artifacts; --", "catalog_files", "Ünicode"):
        entry = FileEntry(path=f"catalog/{name}.parquet", size_bytes=1, digest="0" * 64)
        changed = record.model_copy(update={"files": [*record.files, entry]})
        (place / "record.json").write_bytes(encode_record(changed))
        store.catalog.rebuild()
        assert len(catalog_rows(store)["artifacts"]) == len(before["artifacts"])


@pytest.mark.parametrize("record", [b"[" * 100_000, b'{"a":' * 100_000, b"{}", b'{"files": 1}', b"\xff"])
def test_a_record_in_a_bucket_that_cannot_be_read_is_damaged(record):
    with pytest.raises(StoreError, match="the record is damaged"):
        parse_record(Path("record.json"), record)


@pytest.mark.parametrize("text", ["", '{"run_id": "r", "started": "yesterday"}', "[" * 10_000])
def test_a_bad_run_is_one_line_and_stops_nothing(store, place, text):
    (store.root / "runs").mkdir()
    (store.root / "runs" / "r.json").write_text(text)
    os.mkfifo(store.root / "runs" / "pipe.json")
    assert len(store.list()) == 2
    assert sorted(problem.path for problem in store.verify()) == ["pipe.json", "r.json"]
    store.catalog.add_run("good")
    assert store.catalog.query("SELECT run_id FROM runs") == [{"run_id": "good"}]
