"""Impact: a file, or a document, is followed to every artifact that it went into."""

import shutil

import pytest

from tests.test_tasks.traced_line import traced_line
from tokmill.tasks.core.errors import TracingError
from tokmill.tasks.store import Store, digest_bytes, lineage
from tokmill.tasks.takedown.impact import impact_of
from tokmill.tasks.takedown.request import take_down
from tokmill.tasks.tracing import Origins, trace_document

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    return traced_line(tmp_path_factory.mktemp("line"))


def held(impact):
    return {each.reference: each for each in impact.artifacts}


def test_a_file_is_found_by_path_glob_and_digest_also_when_it_is_gone(line, tmp_path):
    path = line.texts / "web" / "pages.jsonl"
    by_path = impact_of(line.store, str(path))
    assert [(file.source, file.name) for file in by_path.files] == [("web", "pages.jsonl")]
    assert by_path.files[0].digest == digest_bytes(path.read_bytes())
    copy = shutil.copy(path, tmp_path / "elsewhere.jsonl")
    for name in (str(line.texts / "web" / "*.jsonl"), by_path.files[0].digest, str(copy)):
        assert impact_of(line.store, name) == by_path
    away = path.rename(tmp_path / "away")
    try:
        assert impact_of(line.store, str(path)) == by_path
    finally:
        away.rename(path)


def test_it_tells_what_contains_the_text_from_what_was_learned_from_it(line):
    found = held(impact_of(line.store, str(line.texts / "web" / "pages.jsonl")))
    kinds = {each.kind: each.holds for each in found.values()}
    assert {kinds[kind] for kind in ("corpus", "encoded", "mixture", "packed")} == {"contains"}
    assert {kinds[kind] for kind in ("counts", "tokenizer")} == {"made from"}


def test_a_row_is_in_the_sequences_that_trace_finds(line):
    (document,) = trace_document(Origins.of(line.store, line.packed), "web:pages.jsonl:1")
    found = held(impact_of(line.store, f"{line.texts / 'web' / 'pages.jsonl'}:1"))
    assert found["packed/line@v1"].sequences == len({piece.sequence for piece in document.pieces}) > 0


def test_what_no_corpus_lists_is_an_error(line):
    with pytest.raises(TracingError, match=r"no corpus of .* lists such a file"):
        impact_of(line.store, "nothing.jsonl")
    with pytest.raises(TracingError, match="no row 99"):
        impact_of(line.store, f"{line.texts / 'web' / 'pages.jsonl'}:99")


def test_takedown_from_impact_to_the_records_that_stay(line, tmp_path):
    """The whole story: impact, a new version, the old one superseded and removed, its record kept."""
    store = Store.open(shutil.copytree(line.store.root, tmp_path / "store"))
    name = f"{line.texts / 'web' / 'pages.jsonl'}:0"
    before = held(impact_of(store, name))
    assert before["packed/line@v1"].sequences
    taken = take_down(Origins.of(store, line.packed), ["web:pages.jsonl:0"])
    new = taken.record
    after = held(impact_of(store, name))
    assert after[new.reference].sequences == 0
    assert after[new.reference].holds == "made from"
    assert store.superseded()[line.packed.fingerprint] == [new.reference]
    assert "packed/line@v1" in lineage(store, new.ref).to_tree()
    data = store.path(line.packed)
    for record in store.remove(line.packed, with_dependents=True):
        assert record.ref != new.ref
    assert not data.exists()
    assert store.past("packed", line.packed.fingerprint).reference == "packed/line@v1"
    tree = lineage(store, new.ref).to_tree()
    assert "packed/line@v1 (removed)" in tree
    assert "mixture/line@v1" in tree
    assert store.verify() == []
    assert "packed/line@v1" not in held(impact_of(store, name))
