"""A record is not believed: what was changed is found out, what leads elsewhere is not followed."""

import json
import os
import re
import shutil

import pytest

from tests.hostile_names import HOSTILE
from tests.test_tasks.store_stages import WRITE, ask, ask_joined, catalog_rows
from tokmill.tasks.store import Store, digest_bytes, read_record
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.digest import FileEntry, content_digest
from tokmill.tasks.store.disk import DamagedError
from tokmill.tasks.store.record import encode_record
from tokmill.tasks.store.remote import Contents

REQUEST = ask(text="abcd")


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store")


@pytest.fixture
def place(store):
    """The directory of a published artifact that the catalog knows, beside one that is left alone."""
    ref = store.realize(REQUEST).ref
    store.realize(ask("other", text="left alone"))
    assert len(store.list()) == 2
    return store.path(ref)


def sealed(document):
    """The bytes of a record that somebody wrote by hand, digest of itself included."""
    body = (json.dumps(document, indent=1) + "\n").encode()
    seal = b'{\n "record_digest": "%s",\n' % digest_bytes(body).encode()
    return seal + body.removeprefix(b"{\n")


def document_of(place):
    document = json.loads((place / "record.json").read_bytes())
    document.pop("record_digest", None)
    return document


def rewritten(place, change):
    """Change a record by hand."""
    document = document_of(place)
    change(document)
    (place / "record.json").write_bytes(sealed(document))


# -- changed after it was published -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"num_chars": ?4', b'"num_chars":5'),
        (rb'"size_bytes": ?4', b'"size_bytes":3'),
        (rb'"digest": ?"[0-9a-f]', b'"digest":"x'),
        (rb'"user": ?"', b'"user":"not '),
        (rb"\n$", b"\n\n"),
    ],
    ids=["metric", "size", "digest", "user", "white space"],
)
def test_a_record_that_was_changed_is_set_aside_told_of_and_made_again(store, place, old, new):
    before = (place / "record.json").read_bytes()
    changed, num_changes = re.subn(old, new, before, count=1)
    assert num_changes == 1
    (place / "record.json").write_bytes(changed)
    (problem,) = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert (problem.artifact, problem.path) == (f"text/{place.name}", "record.json")
    told = []
    assert not store.realize(REQUEST, report=told.append).cached
    assert "set aside as" in told[0]
    assert store.verify() == []


def test_a_digest_of_another_record_is_none(store, place):
    record = (place / "record.json").read_bytes()
    (place / "record.json").write_bytes(re.sub(rb'(?<="record_digest": ")[0-9a-f]{64}', b"0" * 64, record))
    (problem,) = store.verify()
    assert "changed after it was written" in problem.message


def test_a_forged_digest_is_found_by_the_catalog(store, place):
    rewritten(place, lambda document: document["metrics"].update(num_chars=5))
    (problem,) = store.verify()
    assert (problem.artifact, problem.path) == ("catalog", f"text/{place.name}/record.json")
    assert "the catalog has other artifacts, metrics" in problem.message
    store.catalog.rebuild()
    assert store.verify() == []


def test_what_the_catalog_knows_and_the_store_has_no_longer(store, place):
    shutil.rmtree(place)
    (problem,) = store.verify()
    assert str(problem).startswith(f"catalog: text/{place.name}/record.json: ")
    assert len(store.list()) == 1
    store.catalog.sync()  # the query may have been answered beside a catalog that was just written
    assert store.verify() == []


def test_what_the_catalog_has_not_seen_yet_is_no_problem(store, place):
    store.catalog = Catalog(store.layout, publish_wait_seconds=0.0, report=lambda line: None)
    shutil.copytree(store.root / "labels", store.root / "labels.kept")
    store.realize(ask("new", text="new"))
    assert store.verify() == []


def test_a_record_of_another_format_says_so(store, place):
    rewritten(place, lambda document: document.update(format_version=1))
    (problem,) = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert "format_version=1 is not 3" in problem.message
    assert not store.realize(REQUEST, report=lambda line: None).cached


# -- names that lead elsewhere ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../outside", *HOSTILE.values()])
def test_names_that_do_not_stay_inside_are_not_followed(store, place, name):
    os.mkfifo(store.root / "outside")  # who reads it waits for ever

    def lead_out(document):
        document["files"][0]["path"] = name
        entries = [FileEntry.model_construct(**entry) for entry in document["files"]]
        document["content_digest"] = content_digest(entries)

    rewritten(place, lead_out)
    (problem,) = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert "files.0.path cannot be read" in problem.message
    assert store.lookup(REQUEST, report=lambda line: None) is None


@pytest.mark.parametrize("name", ["...", "..a", ".a", "a..", "a b", "a\nb", "é", "parts/.first"])
def test_names_that_only_look_odd_are_names(name):
    assert FileEntry(path=name, size_bytes=0, digest="0" * 64).path == name


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


@pytest.mark.slow
@pytest.mark.parametrize("harm", [fifo, device, link, folder])
@pytest.mark.parametrize("name", ["text.txt", "record.json"])
def test_what_is_no_regular_file_is_never_opened(store, place, harm, name):
    harm(place / name)
    problems = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert [problem.path for problem in problems] == [name]
    assert len(store.list()) == (1 if name == "record.json" else 2)
    assert not store.realize(REQUEST, verify="full", report=lambda line: None).cached
    assert store.verify() == []


def test_a_folder_that_is_a_link_is_not_followed(store, place, tmp_path):
    shutil.copytree(place / "parts", tmp_path / "elsewhere")
    shutil.rmtree(place / "parts")
    (place / "parts").symlink_to(tmp_path / "elsewhere")
    assert [problem.path for problem in store.verify()] == ["parts/first.txt"]
    assert not store.realize(REQUEST, report=lambda line: None).cached


def test_references_that_lead_out_of_the_store_are_refused(store, place):
    ref = store.resolve("text/one")
    for change in ({"kind": ".."}, {"kind": "runs"}, {"fingerprint": "../" * 8}, {"fingerprint": "abc"}):
        with pytest.raises(Exception, match=r"cannot be used|is not a fingerprint"):
            store.path(ref.model_copy(update=change))


# -- records that cannot be ------------------------------------------------------------------------------


BAD = {
    "size": lambda document: document["files"][0].update(size_bytes=10**20),
    "negative size": lambda document: document["files"][0].update(size_bytes=-1),
    "date": lambda document: document["timings"].update(started="yesterday"),
    "date of no calendar": lambda document: document["timings"].update(ended="2026-02-30T00:00:00Z"),
    "seconds": lambda document: document["timings"].update(seconds=float("nan")),
    "metric": lambda document: document["metrics"].update(num_chars=float("nan")),
    "infinite metric": lambda document: document["metrics"].update(num_chars=float("inf")),
    "large metric": lambda document: document["metrics"].update(num_chars=10**400),
    "infinite payload": lambda document: document["payload"].update(x=[[float("inf")]]),
    "infinite parameter": lambda document: document["params"].update(x=[[float("-inf")]]),
    "stage version": lambda document: document["payload"].update(version=10**20),
    "stage": lambda document: document["payload"].update(stage=["write"]),
    "account": lambda document: document["accounts"][0].update(num_in=10**30),
    "position": lambda document: document["inputs"][0].update(position=2**64),
    "kind": lambda document: document.update(kind="../text"),
    "name": lambda document: document.update(name="../one"),
    "label": lambda document: document.update(label="v0"),
    "large label": lambda document: document.update(label="v" + "9" * 30),
    "format": lambda document: document.update(format_version=-1),
    "nothing": lambda document: document.clear(),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_one_bad_record_is_one_line_and_everything_else_goes_on_without_it(store, place, change):
    rewritten(place, change)
    (problem,) = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert problem.artifact == f"text/{place.name}"
    told = []
    store.catalog = Catalog(store.layout, report=told.append)
    assert [row["name"] for row in store.list()] == ["other"]
    store.catalog.rebuild()
    assert len(told) == 2
    assert all(line.startswith(f"the catalog leaves out text/{place.name}/record.json: ") for line in told)
    assert store.resolve("text/other").name == "other"
    joined = store.realize(ask_joined("all", store.resolve("text/other")))
    assert store.path(joined.ref).is_dir()


def test_a_record_that_is_nested_deeply_is_one_line(store, place):
    record = (place / "record.json").read_bytes()
    deep = record.replace(b'"text": "abcd"', b'"text": ' + b"[" * 50_000 + b"]" * 50_000)
    assert deep != record
    (place / "record.json").write_bytes(deep)
    (problem,) = [problem for problem in store.verify() if problem.artifact != "catalog"]
    assert "recursion limit" in problem.message
    assert [row["name"] for row in store.list()] == ["other"]


def test_a_record_cannot_name_a_table_of_the_catalog(store, place):
    record = read_record(place)
    before = catalog_rows(store)
    for name in ("artifacts", "x; DROP TABLE artifacts; --", "catalog_files", "Ünicode"):
        entry = FileEntry(path=f"catalog/{name}.parquet", size_bytes=1, digest="0" * 64)
        (place / "record.json").write_bytes(
            encode_record(record.model_copy(update={"files": [*record.files, entry]}))
        )
        store.catalog.rebuild()
        assert len(catalog_rows(store)["artifacts"]) == len(before["artifacts"])


def test_a_record_keeps_what_json_can_say(store):
    told = {"text": 'quotes " and \\ and \u2028 and \0', "times": 1, "unaccounted": 0}
    ref = store.realize(ask("odd", text=told["text"])).ref
    assert store.record(ref).params == told
    assert store.verify() == []
    assert json.loads(store.catalog.query("SELECT params FROM artifacts")[0]["params"]) == told
    assert WRITE.version == store.record(ref).payload["version"]


# -- places and labels ------------------------------------------------------------------------------------


def a_file(place):
    shutil.rmtree(place)
    place.write_text("")


def a_dangling_link(place):
    shutil.rmtree(place)
    place.symlink_to(place.parent / "nowhere")


def a_link_to_itself(place):
    shutil.rmtree(place)
    place.symlink_to(place)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [a_file, a_dangling_link, a_link_to_itself])
def test_a_place_that_holds_no_artifact_is_set_aside_and_made_again(store, place, harm):
    harm(place)
    assert [row["name"] for row in store.list()] == ["other"]
    store.catalog.sync()
    (problem,) = store.verify()
    assert problem.artifact == f"text/{place.name}"
    assert store.lookup(REQUEST, report=lambda line: None) is None
    harm_again = store.realize(REQUEST, report=lambda line: None)
    assert not harm_again.cached
    assert store.verify() == []


def test_what_is_set_aside_gets_a_number_that_nobody_has(store, place):
    for _ in range(2):
        (place / "text.txt").write_text("")
        store.realize(REQUEST, report=lambda line: None)
    aside = store.root / "damaged" / "text"
    shutil.rmtree(aside / f"{place.name}-1")
    (aside / f"{place.name}-old").mkdir()
    (place / "text.txt").write_text("")
    assert not store.realize(REQUEST, report=lambda line: None).cached
    assert (aside / f"{place.name}-3").is_dir()


def as_folder(path):
    path.mkdir()


def as_fifo(path):
    os.mkfifo(path)


def as_text(text):
    return lambda path: path.write_text(text)


NO_LABELS = {
    "folder": ("@v7", as_folder),
    "fifo": ("@v7", as_fifo),
    "deep": ("@v7", as_text("[" * 100_000)),
    "digits": ("@v7", as_text("1" * 10_000)),
    "outside": ("@v7", as_text('{"fingerprint": "../../../etc/passwd"}')),
    "word": ("@version", as_text("")),
    "zero": ("@v0", as_text("")),
    "large": ("@v" + "9" * 40, as_text('{"fingerprint": "' + "0" * 64 + '"}')),
    "bytes": (os.fsdecode(b"@\xff"), as_text("")),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), NO_LABELS.values(), ids=NO_LABELS.keys())
def test_files_that_are_no_labels_stop_nothing_and_are_told_of(store, place, name, make):
    for tree in ("labels", "aliases"):
        (store.root / tree / "text" / "one").mkdir(parents=True, exist_ok=True)
        make(store.root / tree / "text" / "one" / name)
    assert {problem.artifact for problem in store.verify()} >= {"labels/text/one"}
    assert store.resolve("text/one").fingerprint.startswith(place.name)
    assert len(store.list()) == 2
    store.catalog.rebuild()
    ref = store.realize(ask(text="next")).ref
    assert store.label(ref, "one") == ("v8" if name == "@v7" else "v2")
    store.tag(ref, "prod")
    assert store.resolve("text/one@prod") == ref


def test_folders_that_are_no_names_stop_nothing(store, place):
    odd = store.root / "labels" / "text" / os.fsdecode(b"\xff")
    odd.mkdir()
    (odd / "@v1").write_text('{"fingerprint": "' + "0" * 64 + '"}')
    (store.root / "text" / os.fsdecode(b"\xff")).mkdir()
    assert len(store.list()) == 2
    (problem,) = store.verify()
    assert problem.artifact == "labels/text/\\udcff"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"run_id": "r", "started": "yesterday"}', "[" * 10_000, '{"run_id": "../x"}']
)
def test_a_bad_run_is_one_line_and_stops_nothing(store, place, text):
    (store.root / "runs").mkdir()
    (store.root / "runs" / "r.json").write_text(text)
    os.mkfifo(store.root / "runs" / "pipe.json")
    assert len(store.list()) == 2
    assert sorted(problem.path for problem in store.verify()) == ["pipe.json", "r.json"]
    store.catalog.add_run("good")
    assert store.catalog.query("SELECT run_id FROM runs") == [{"run_id": "good"}]


@pytest.mark.parametrize("record", [b"[" * 100_000, b'{"a":' * 100_000, b"{}", b'{"files": 1}', b"\xff"])
def test_a_record_in_a_bucket_that_cannot_be_read_is_damaged(record):
    with pytest.raises(DamagedError):
        Contents.of(record)
