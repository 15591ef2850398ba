"""Impact: a file, or a document, is followed to every artifact that it went into."""

import shutil

import pytest

from tests.test_tasks.store_stages import ask, ask_joined, give_one_number
from tests.test_tasks.traced_line import ESSAY, NOTES, line_params
from tests.test_tasks.whole_line import Line
from tokmill.flows.reproduce.subject import cargo_of
from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.store import Store, digest_bytes, lineage
from tokmill.tasks.store.push import move
from tokmill.tasks.store.retention import Policy
from tokmill.tasks.takedown.impact import FoundFile, impact_of
from tokmill.tasks.takedown.request import take_down
from tokmill.tasks.tracing import Origins, trace_document

pytestmark = pytest.mark.slow


def held(impact):
    return {each.reference: each for each in impact.artifacts}


def test_a_file_is_found_by_path_glob_and_digest_also_when_it_is_gone(traced, tmp_path):
    path = traced.texts / "web" / "pages.jsonl"
    by_path = impact_of(traced.store, str(path))
    kinds = {each.kind: each.holds for each in by_path.artifacts}
    assert {kinds[kind] for kind in ("corpus", "encoded", "mixture", "packed")} == {"contains"}
    assert {kinds[kind] for kind in ("counts", "tokenizer")} == {"made from"}
    assert [(file.source, file.name) for file in by_path.files] == [("web", "pages.jsonl")]
    assert by_path.files[0].digest == digest_bytes(path.read_bytes())
    copy = shutil.copy(path, tmp_path / "elsewhere.jsonl")
    for name in (str(traced.texts / "web" / "*.jsonl"), by_path.files[0].digest, str(copy)):
        assert impact_of(traced.store, name) == by_path
    away = path.rename(tmp_path / "away")
    try:
        assert impact_of(traced.store, str(path)) == by_path
    finally:
        away.rename(path)


@pytest.mark.parametrize("what", ["corpus", "encoded_shard text", "encoded_shard", "packed"])
def test_a_content_that_shares_a_number_by_chance_is_not_taken_for_the_texts(traced, tmp_path, what):
    store = Store.open(shutil.copytree(traced.store.root, tmp_path / "store"))
    alone = store.realize(ask("alone", seed="x")).ref
    store.realize(ask_joined("user", alone))
    name = str(traced.texts / "web" / "pages.jsonl")
    before = impact_of(store, name)
    assert not {"text/alone@v1", "joined/user@v1"} & held(before).keys()
    kind = what.removesuffix(" text")
    holders = [each for each in before.artifacts if each.kind == kind and each.holds == "contains"]
    ref = store.resolve(holders[0].reference)
    if what == "encoded_shard text":  # of the shard, as an input from outside of the store
        (text,) = [entry for entry in store.record(ref).inputs if entry.kind is None]
        collided = give_one_number(store, (None, text.digest), (None, "seed:x"))
    else:
        collided = give_one_number(store, (ref.kind, ref.content_digest), (alone.kind, alone.content_digest))
    assert impact_of(collided, name) == before


def test_what_no_corpus_lists_is_an_error(traced):
    for name in ("nothing.jsonl", f"pages.jsonl:{'9' * 5000}", "long" * 20_000):
        with pytest.raises(TracingError, match=r"no corpus of .* lists such a file"):
            impact_of(traced.store, name)
    for name, row in (("web/pages.jsonl", 99), ("notes/notes.txt", 4)):
        with pytest.raises(TracingError, match=f"no row {row}"):
            impact_of(traced.store, f"{traced.texts / name}:{row}")


@pytest.mark.objects
def test_sources_in_a_bucket_are_named_by_url_glob_digest_and_copy(bucket, tmp_path):
    texts = enumerate((ESSAY, NOTES[1]))
    pages = "".join(f'{{"id": "{number}", "text": "{text}"}}\n' for number, text in texts).encode()
    bucket.put("web/one.jsonl", pages)
    bucket.put("web/two.jsonl", b'{"id": "c", "text": "Something else."}\n')
    bucket.put("web/", b"")  # a marker, as consoles write for folders
    specs = {"web": SourceSpec(files=[f"{bucket.url}/web/*.jsonl"], id_column="id")}
    line = Line(Store.open(tmp_path / "store"), tmp_path, specs)
    corpus, texts = line.corpus()
    line.tokenizer(line_params(), corpus, texts)

    url = f"{bucket.url}/web/one.jsonl"
    found = impact_of(line.store, url)
    assert found.files == [FoundFile(url, "web", "one.jsonl", digest_bytes(pages))]
    assert held(found)["corpus/line@v1"].holds == "contains"
    assert held(found)["tokenizer/line@v1"].holds == "made from"
    copy = tmp_path / "copy"
    copy.write_bytes(pages)
    bucket.delete("web/one.jsonl")
    for name in (f"{bucket.url}/*/one.*", digest_bytes(pages), str(copy)):
        assert impact_of(line.store, name) == found
    for name, names in (("*", ["one.jsonl", "two.jsonl"]), ("two.jsonl", ["two.jsonl"])):
        assert [file.name for file in impact_of(line.store, f"{bucket.url}/web/{name}").files] == names
    assert impact_of(line.store, f"{url}:1").row == 1
    for name in (f"{url}:2", f"{bucket.url}/web/", f"{bucket.url}2/web/one.jsonl"):
        with pytest.raises(TracingError):
            impact_of(line.store, name)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.objects)])
def store(request, traced, tmp_path):
    """A copy of the line's store in a folder, or in a bucket with markers for its folders."""
    if request.param == "folder":
        return Store.open(shutil.copytree(traced.store.root, tmp_path / "store"))
    bucket = request.getfixturevalue("bucket")
    request.getfixturevalue("monkeypatch").setenv("TOKMILL_CACHE", str(tmp_path / "cache"))
    copy = Store.open(f"{bucket.url}/store")
    move(traced.store, copy, cargo_of(traced.store, ["card/line", "packed/line"]), lambda _: None)
    for folder in (
        "index/packed",
        "files/packed",
        "index/removed",
        "index/removed/packed",
        "index/labels/packed",
    ):
        bucket.put(f"store/{folder}/", b"")
    return copy


def files_of(request, store):
    """Everything that the store, or its bucket, has."""
    if "bucket" in request.node.callspec.id:
        return request.getfixturevalue("bucket").keys()
    return [path.as_posix() for path in store.root.rglob("*")]


WHY = "case 17: asked for by the author"


def test_takedown_from_impact_to_the_records_that_stay(traced, store, request):
    """The whole story: impact, a new version, the old one superseded and removed, its record kept."""
    name = f"{traced.texts / 'web' / 'pages.jsonl'}:0"
    before = held(impact_of(store, name))
    assert before["packed/line@v1"].sequences
    taken = take_down(Origins.of(store, traced.packed), ["web:pages.jsonl:0"], reason=WHY)
    new = taken.record
    assert new.params == {"reason": WHY}
    after = held(impact_of(store, name))
    assert after[new.reference].sequences == 0
    assert after[new.reference].holds == "made from"
    assert store.superseded()[traced.packed.fingerprint] == [new.reference]
    assert "packed/line@v1" in lineage(store, new.ref).to_tree()
    shards = [entry.ref for entry in store.record(traced.packed).inputs if entry.kind == "packed_shard"]

    place = f"/packed/{store.layout.artifact('packed', traced.packed.fingerprint).name}"
    assert any(f"{place}/" in name for name in files_of(request, store))
    with pytest.raises(StoreError, match=r"packed/line@v1 is not removed: card/line@v1.* made from it"):
        store.remove(traced.packed)
    removed = store.remove(traced.packed, with_dependents=True)
    assert [record.reference for record in removed] == ["card/line@v1", "packed/line@v1"]
    assert not any(f"{place}/" in name for name in files_of(request, store))  # not even unlisted
    left = store.tombstone("packed", traced.packed.fingerprint)
    assert left.record.reference == "packed/line@v1"
    assert left.reason == f"superseded by {new.reference}: {WHY}"
    collected = store.collect(Policy(older_than_days=0, keep=1))
    (latest,) = [ref for ref in shards if store.holds(ref)]  # the last version of a name is kept
    assert store.resolve("packed_shard/line") == latest
    gone = {ref.fingerprint for ref in shards if ref != latest}
    assert gone
    assert gone <= {item.fingerprint for item in collected.items}
    listed = store.catalog.query("SELECT fingerprint, reason FROM removed WHERE kind = 'packed_shard'")
    assert {tuple(row.values()) for row in listed} == {(one, "gc: nothing kept it") for one in gone}

    tree = lineage(store, new.ref).to_tree()
    assert "packed/line@v1 (removed)" in tree
    assert "corpus/line@v1" in tree
    again = lineage(store, traced.packed)
    assert again.nodes[again.root].status == "removed"
    assert store.verify() == []
    assert "packed/line@v1" not in held(impact_of(store, name))
    after = Origins.of(store, new.ref)
    assert trace_document(after, "web:pages.jsonl:0")[0].absent == "it was taken down in packed/line@v2"
    assert trace_document(after, "web:pages.jsonl:1")[0].pieces
    assert take_down(after, ["web:pages.jsonl:1"]).record.label == "v3"
    store.catalog.rebuild()
    assert store.verify() == []


def test_the_way_leads_on_behind_a_removed_version(traced, store):
    """Another document of the same file is in the new version, which was made from the removed one."""
    name = f"{traced.texts / 'web' / 'pages.jsonl'}:1"
    new = take_down(Origins.of(store, traced.packed), ["web:pages.jsonl:0"]).record
    before = held(impact_of(store, name))
    removed = store.remove(traced.packed, with_dependents=True)
    after = held(impact_of(store, name))
    assert after[new.reference].holds == "contains"
    assert after == {key: each for key, each in before.items() if key not in {r.reference for r in removed}}


def test_what_was_made_from_lost_tokens_is_unknown(traced, tmp_path):
    """The folder of encoded shards is gone, and nothing tells of which text they were."""
    name = str(traced.texts / "web" / "pages.jsonl")
    store = Store.open(shutil.copytree(traced.store.root, tmp_path / "store"))
    assert "unknown" not in {each.holds for each in impact_of(store, name).artifacts}
    shutil.rmtree(store.root / "encoded_shard")
    found = held(impact_of(store, name))
    assert found["packed/line@v1"].holds == found["mixture/line@v1"].holds == "unknown"
    assert "encoded_shard/line" in found["packed/line@v1"].why
    assert found["tokenizer/line@v1"].holds == "made from"

    tokenizer = store.resolve("tokenizer/line")  # what is lost may share a number with what is there
    for entry in store.record(store.resolve("encoded/line")).inputs:
        if entry.kind == "encoded_shard":
            lost = entry.kind, entry.digest
            store = give_one_number(store, (tokenizer.kind, tokenizer.content_digest), lost)
    assert held(impact_of(store, name)) == found
