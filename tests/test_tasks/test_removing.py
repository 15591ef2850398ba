"""What a takedown leaves: every artifact that holds the documents is named, and can be removed for good."""

import json
import re
import shutil

import pytest

from tests.test_tasks.store_stages import ask, ask_joined, catalog_rows
from tests.test_tasks.traced_line import SPECIALS, SPECS, WEB, line_params, traced_line
from tests.test_tasks.whole_line import Line
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.takedown.holders import holders_of
from tokmill.tasks.takedown.request import take_down
from tokmill.tasks.tracing import Origins, find_documents

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(traced, tmp_path_factory):
    """The traced line's store with an export of its packing."""
    store = Store.open(shutil.copytree(traced.store.root, tmp_path_factory.mktemp("exported") / "store"))
    given = {"packed": traced.packed}
    shards = []
    for entry in PackedManifest.open(store.path(traced.packed)).shards:
        params = ExportShardParams(index=entry.index, formats=["jsonl"])
        request = Request(EXPORT_SHARD, f"line.jsonl.shard/{entry.index}", params, given)
        shards.append(store.realize(request).ref)
    store.realize(Request(EXPORT, "line.jsonl", ExportParams(formats=["jsonl"]), given | {"shards": shards}))
    return store.root


@pytest.fixture
def copied(exported, traced, tmp_path):
    """The line's origins in a store that a test may add to."""
    return Origins.of(Store.open(shutil.copytree(exported, tmp_path / "store")), traced.packed)


def references(holders):
    return {holder.reference for holder in holders if not holder.unknown}


def test_every_artifact_that_holds_a_document_is_named(copied):
    taken = take_down(copied, ["web:first"])
    held = references(taken.holders)
    assert held >= {"packed/line@v1", "packed/line.jsonl@v1", "mixture/line@v1"}
    kinds = {reference.partition("/")[0] for reference in held}
    assert kinds == {"encoded_shard", "mixture", "packed", "packed_shard"}
    assert taken.record.reference not in held
    again = Origins.of(copied.store, taken.record.ref)
    assert references(holders_of(again, taken.documents)) == held
    untouched = references(holders_of(copied, find_documents(copied, ["notes:notes.txt:3"])))
    assert taken.record.reference in untouched


def test_another_corpus_with_the_same_file_holds_the_document_as_well(copied, tmp_path):
    other = traced_line(tmp_path / "other", encode={"end_of_document": "<|begin|>"})
    for kind in other.store.layout.kinds():
        for place in (other.store.root / kind).iterdir():
            if not (copied.store.root / kind / place.name).exists():
                shutil.copytree(place, copied.store.root / kind / place.name)
    copied.store.list()  # what came from elsewhere gets a label
    held = references(take_down(copied, ["web:first"]).holders)
    packings = {reference for reference in held if reference.startswith("packed/line@")}
    assert packings == {"packed/line@v1", "packed/line@v2"}


def grown(texts, copied, folder, **encode):
    """Run the line again over a file that grew and a copy of a row, in the same store; return its origins."""
    store = copied.store
    shutil.copytree(texts, folder)
    pages = folder / "web" / "pages.jsonl"
    more = [json.dumps({"id": f"new {row}", "text": f"A new page {row}."}) + "\n" for row in range(9)]
    pages.write_text("".join(more) + pages.read_text("utf-8"), "utf-8")
    (folder / "notes" / "notes.txt").write_text(f"{WEB[0]['text']}\n", "utf-8")
    made = Line(store, folder, SPECS).run(line_params(encode or None))
    return Origins.of(store, made["packed"])


REARRANGED = {"begin_of_document": "<|begin|>", "fim_rate": 1.0, "fim_tokens": SPECIALS[2:]}


@pytest.mark.parametrize("encode", [{}, {"end_of_document": None, **REARRANGED}], ids=["alike", "rearranged"])
def test_a_document_is_found_by_its_text_where_its_file_was_another(traced, copied, tmp_path, encode):
    after = grown(traced.texts, copied, tmp_path / "texts", **encode)
    expected = {"packed/line@v1", "packed/line.jsonl@v1", "mixture/line@v1"}
    taken = take_down(after, ["web:first"])
    held = references(taken.holders)
    assert held >= {*expected, "packed/line@v2", "mixture/line@v2", taken.record.reference}  # a copy is left
    everything = take_down(after, ["web:first", "notes:notes.txt:0"])
    assert everything.record.reference not in references(everything.holders)
    before = references(take_down(copied, ["web:second"]).holders)
    assert {"packed/line@v1", "packed/line@v2"} <= before
    assert not expected & references(holders_of(after, find_documents(after, ["web:new 3"])))


def test_where_the_tokens_of_an_earlier_state_are_gone_it_is_unknown(traced, copied, tmp_path):
    after = grown(traced.texts, copied, tmp_path / "texts")
    for ref in copied.ancestor("encoded").refs("shards"):
        shutil.rmtree(copied.store.layout.artifact(ref.kind, ref.fingerprint))
    unknown = {holder.reference for holder in take_down(after, ["web:first"]).holders if holder.unknown}
    assert "packed/line@v1" in unknown


def test_an_artifact_that_cannot_be_read_is_named_with_the_reason(copied):
    export = copied.store.resolve("packed/line.jsonl")
    for pieces in copied.store.path(export).glob("__pieces__/pieces-*.parquet"):
        pieces.write_bytes(b"broken")
    unknown = {holder.reference for holder in take_down(copied, ["web:first"]).holders if holder.unknown}
    assert "packed/line.jsonl@v1" in unknown


def test_what_was_taken_down_from_is_superseded_with_what_was_made_from_it(copied):
    assert copied.store.superseded() == {}
    taken = take_down(copied, ["web:first"])
    gone = copied.store.superseded()
    names = {row["fingerprint"]: f"{row['kind']}/{row['name']}@{row['label']}" for row in copied.store.list()}
    marked = {names[fingerprint]: makers for fingerprint, makers in gone.items()}
    assert marked["packed/line@v1"] == marked["packed/line.jsonl@v1"] == [taken.record.reference]
    assert taken.record.fingerprint not in gone
    further = take_down(Origins.of(copied.store, taken.record.ref), ["web:second"])
    assert copied.store.superseded()[taken.record.fingerprint] == [further.record.reference]
    assert further.record.fingerprint not in copied.store.superseded()

    copied.store.remove(taken.record.ref, with_dependents=True)  # the one in the middle
    gone = copied.store.superseded()
    assert gone[copied.packed.fingerprint] == [further.record.reference]
    assert gone[copied.store.resolve("packed/line.jsonl").fingerprint] == [further.record.reference]
    copied.store.remove(copied.packed.ref, with_dependents=True, reason="")
    left = copied.store.tombstone("packed", copied.packed.fingerprint)
    assert left.reason.startswith(f"superseded by {further.record.reference}")
    copied.store.remove(further.record.ref, with_dependents=True)
    assert copied.store.superseded() == {}


@pytest.mark.parametrize("repacked", [False, True])
def test_the_new_version_gets_a_card(copied, repacked):
    taken = take_down(copied, ["web:first"], repacked=repacked)
    assert taken.card is not None
    (packed,) = taken.card.refs("packed")
    assert packed.fingerprint == taken.record.fingerprint
    assert (copied.store.path(taken.card.ref) / "card.md").is_file()
    assert taken.card.fingerprint not in copied.store.superseded()


class TestRemoving:
    @pytest.fixture
    def store(self, tmp_path):
        store = Store.open(tmp_path / "store")
        one, two = store.realize(ask("a", text="a")).ref, store.realize(ask("b", text="b")).ref
        joined = store.realize(ask_joined("ab", one, two)).ref
        store.realize(ask_joined("abab", joined, one))
        return store

    def test_a_tombstone_stays_and_the_label_is_never_given_out_again(self, store):
        ref = store.resolve("joined/abab")
        record = store.record(ref)
        store.remove(ref)
        assert store.past("joined", ref.fingerprint).metrics == record.metrics
        with pytest.raises(StoreError, match=r"joined/abab@v1 was removed on 20"):
            store.resolve("joined/abab@v1")
        with pytest.raises(StoreError, match="is not a published artifact"):
            store.read("joined", ref.fingerprint)
        other = store.realize(ask_joined("abab", store.resolve("text/a"))).ref
        assert store.label(other, "abab") == "v2"
        store.catalog.rebuild()
        assert store.verify() == []

    def test_a_tombstone_is_a_row_of_the_catalog_and_nothing_to_report(self, store):
        told = []
        store.catalog = Catalog(store.layout, report=told.append)
        ref = store.resolve("joined/abab")
        store.remove(ref, reason="a test")
        left = store.tombstone("joined", ref.fingerprint)
        with pytest.raises(StoreError, match="has 2,001 characters and may have 2,000"):
            store.remove(store.resolve("joined/ab"), reason="x" * 2001)
        query = "SELECT fingerprint, kind, name, label, num_files, reason, user_name FROM removed"
        (row,) = store.catalog.query(query)
        files = len(left.record.files)
        assert tuple(row.values()) == (ref.fingerprint, "joined", "abab", "v1", files, "a test", left.by)
        rows = catalog_rows(store)
        store.catalog.rebuild()
        assert catalog_rows(store) == rows
        assert told == []

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            (lambda text: "what a link led to", "cannot be read as a tombstone: Invalid JSON"),
            (lambda text: text.replace('"size_bytes": ', '"size_bytes": 9'), "content digest is not that of"),
            (lambda text: text.replace("joined", "text"), "do not have the digest in the second line"),
            (lambda text: "{\n" + text.split("\n", 2)[2], "the second line holds no digest of the others"),
            (lambda text: text.replace('"format_version": 2', '"format_version": 9'), "version=9 is not 2"),
        ],
    )
    def test_verify_tells_a_damaged_tombstone_from_a_sound_one(self, store, damage, words):
        store.remove(store.resolve("joined/abab"))
        assert store.verify() == []
        (path,) = store.layout.removed.glob("joined/*.json")
        path.write_text(damage(path.read_text("utf-8")), "utf-8")
        store.catalog = Catalog(store.layout, report=lambda _: None)
        store.catalog.rebuild()
        (problem,) = store.verify()
        assert (problem.artifact, problem.path) == ("removed/joined", path.name)
        assert re.search(words, problem.message)
        assert "what a link led to" not in problem.message

    def test_what_is_asked_for_again_is_made_again_and_that_is_said(self, store):
        request = ask_joined("abab", store.resolve("joined/ab"), store.resolve("text/a"))
        store.remove(store.resolve("joined/abab"))
        told = []
        realized = store.realize(request, report=told.append)
        assert realized.how == "made"
        assert told[0].startswith("joined/abab@v1 was removed on ")
        assert store.resolve("joined/abab@v1") == realized.ref
        store.list()
        shutil.rmtree(store.path(realized.ref))
        assert "no longer in the store" in store.verify()[0].message  # its tombstone is of the one before
