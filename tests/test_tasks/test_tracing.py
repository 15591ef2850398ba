"""From packed tokens back to their lines, from documents to their tokens, and why there are none."""

import shutil
from pathlib import Path

import pytest

from tests.test_tasks.traced_line import ESSAY, NOTES, SPECIALS, SPECS, WEB, traced_line
from tests.test_tasks.whole_line import Line
from tokmill.tasks.core.errors import SourceError, StoreError, TracingError
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import TakenDocument
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.mixing.consume import CONSUME, ConsumeParams
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.store import Store
from tokmill.tasks.takedown.request import listed
from tokmill.tasks.takedown.stage import EXCLUDE, TakedownParams
from tokmill.tasks.tracing import Origins, find_documents, trace_document, trace_sequence


@pytest.fixture(scope="module")
def origins(traced):
    return Origins.of(traced.store, traced.packed)


def text_of(source, row):
    """The text of a document by its place."""
    return {"web": [page["text"] for page in WEB], "notes": NOTES, "essays": [ESSAY]}[source][row]


def every_piece(origins):
    for index in range(len(origins.reader)):
        for piece in trace_sequence(origins, index).pieces:
            yield index, piece


def test_every_piece_leads_to_the_text_that_it_is_and_is_named_as_it_can_be_asked_for(origins):
    seen, names = set(), {}
    for _, piece in every_piece(origins):
        text = text_of(piece.source, piece.row).encode()
        first, stop = piece.bytes
        assert text[first:stop].decode("utf-8", "replace") == piece.text
        if piece.document_start + piece.num_document_tokens == piece.document_length:
            assert stop == len(text)
        assert Path(piece.path).name == piece.file
        seen.add(piece.source)
        names[piece.name] = piece
    assert seen == {"essays", "notes", "web"}
    assert {"web:first", "web:pages.jsonl:2", "notes:notes.txt:1", "essays:essay.txt:0"} <= set(names)
    assert names["web:first"].place == "pages.jsonl, row 0 (line 1)"
    assert names["web:pages.jsonl:2"].id is None
    assert names["essays:essay.txt:0"].place == "essay.txt"
    for name, piece in names.items():
        places = [found[:3] for found in find_documents(origins, [name])]
        assert (piece.source, piece.shard, piece.ordinal) in places


def test_with_boundary_tokens_and_rearranged_texts(tmp_path):
    encode = {"begin_of_document": SPECIALS[1], "fim_rate": 0.5, "fim_tokens": SPECIALS[2:]}
    line = traced_line(tmp_path, encode, strategy="best_fit")
    rearranged = {True: 0, False: 0}
    for _, piece in every_piece(Origins.of(line.store, line.packed)):
        text = text_of(piece.source, piece.row)
        assert SPECIALS[0] not in piece.text
        assert SPECIALS[1] not in piece.text
        rearranged[piece.bytes is None] += 1
        if piece.bytes is None:
            whole = piece.num_document_tokens == piece.document_length
            assert not whole or sorted(text) == sorted(without_specials(piece.text))
        else:
            first, stop = piece.bytes
            assert text.encode()[first:stop].decode("utf-8", "replace") == piece.text
    assert min(rearranged.values()) > 2


def without_specials(text):
    for name in SPECIALS:
        text = text.replace(name, "")
    return text


class TestDocument:
    def test_both_ways_agree(self, origins):
        there = {}
        for index, piece in every_piece(origins):
            place = (piece.source, piece.shard, piece.ordinal)
            there.setdefault(place, []).append((index, piece.start, piece.length, piece.document_start))
        for (source, shard, ordinal), pieces in there.items():
            file, row = origins.corpus.lookup(source, shard, ordinal)
            (traced,) = trace_document(origins, f"{source}:{file}:{row}")
            assert [(p.sequence, p.start, p.length, p.document_start) for p in traced.pieces] == pieces
            assert traced.absent is None

    def test_an_id_means_everyone_who_has_it(self, origins):
        rows = {
            "web:twin": [3, 4],
            "web:notes.txt:1": [7],  # an own id wins over a place
            "notes:notes.txt:1": [1],
        }
        assert {name: [found.row for found in trace_document(origins, name)] for name in rows} == rows

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("web:tiny", "fewer tokens than encode.min_tokens"),
            ("web:pages.jsonl:6", "quarantined when the text was ingested: null_text"),
            ("notes:notes.txt:2", "fewer tokens than encode.min_tokens"),
        ],
    )
    def test_why_there_is_none(self, origins, name, why):
        (traced,) = trace_document(origins, name)
        assert not traced.pieces
        assert why in traced.absent

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("nowhere:x", "SOURCE is one of"),
            ("first", "write SOURCE:ID or SOURCE:FILE:ROW"),
            ("web:third", "'web:third' is not a document of the corpus: no document has this id"),
            ("notes:notes.txt:4", "the source names no id column, and notes.txt has the rows 0 to 3"),
            ("notes:other.txt:0", "there is no file 'other.txt'; nearest are notes.txt"),
            ("notes:notes.txt", "notes.txt has the rows 0 to 3"),
            ("notes:notes.txt:-1", "is not a document"),
            ("web:pages.jsonl:²", "is not a document"),
            (f"web:pages.jsonl:{'9' * 5000}", "is not a document"),
            ("web:pages.jsonl:8", "was quarantined when the text was ingested: null_text"),
        ],
    )
    def test_what_is_no_document(self, origins, name, message):
        with pytest.raises(TracingError, match=message):
            trace_document(origins, name)


class TestOrigins:
    def test_files_that_are_gone(self, traced, tmp_path):
        shutil.copytree(traced.texts, tmp_path / "texts")
        moved = tmp_path / "moved"
        shutil.copytree(traced.texts / "web", moved)
        traced.texts.rename(traced.texts.with_name("gone"))
        try:
            without = Origins.of(traced.store, traced.packed)
            pieces = [piece for _, piece in every_piece(without)]
            assert {piece.id for piece in pieces} == {None}
            assert "web:pages.jsonl:0" in {piece.name for piece in pieces}
            with pytest.raises(SourceError, match=r"pages\.jsonl"):
                trace_document(without, "web:first")
            there = Origins.of(traced.store, traced.packed, {"web": moved})
            assert trace_document(there, "web:first")[0].row == 0
            pages = (moved / "pages.jsonl").read_text("utf-8")
            (moved / "pages.jsonl").write_text(pages.replace("rivers", "RIVERS"), "utf-8")
            with pytest.raises(SourceError, match="changed"):
                trace_document(there, "web:first")
        finally:
            traced.texts.with_name("gone").rename(traced.texts)

    def test_an_artifact_that_is_gone_is_named(self, traced, tmp_path):
        shutil.copytree(traced.store.root, tmp_path / "store")
        store = Store.open(tmp_path / "store")
        shutil.rmtree(store.path(traced.made["corpus"]))
        origins = Origins.of(store, traced.packed)
        assert len(origins.reader) == len(PackedReader.open(traced.store.path(traced.packed)))
        with pytest.raises(StoreError, match="goes back to corpus/line, which is not in the store any more"):
            trace_sequence(origins, 0)


WEIGHTS = {"essays": 0, "notes": 1, "web": 9}
NAMES = {
    *(f"notes:notes.txt:{row}" for row in (0, 1, 3)),
    *(f"web:pages.jsonl:{row}" for row in (0, 1, 2, 3, 4, 7)),
}


class Packings:
    """Mixes and packs the traced encoding in a store of its own."""

    def __init__(self, traced, root):
        self.store = Store.open(shutil.copytree(traced.store.root, root))
        self.line, self.origins = Line(self.store, traced.texts, SPECS), Origins.of(self.store, traced.packed)
        self.make = self.line.make
        encoded = traced.made["encoded"]
        self.tokens = {"encoded": encoded, "shards": self.store.record(encoded).refs("shards")}

    def mixed(self, weights=WEIGHTS, total_tokens=300, **inputs):
        params = MixParams(weights=weights, total_tokens=total_tokens)
        return self.make(MIX, params, **self.tokens, **inputs)

    def packed(self, mixture, **options):
        """The origins of a packing of a mixture."""
        params = PackParams(**{"sequence_length": 32, "strategy": "greedy"} | options)
        return Origins.of(self.store, self.line.packed(params, mixture, self.tokens))

    def drawn(self, mixture):
        """The names of the documents in a mixture's plan."""
        found, origins = Mixture.open(self.store.path(mixture)), self.origins
        plan, names = found.plan(), set()
        for index, shard, document in zip(plan.source, plan.shard, plan.document, strict=True):
            source = found.sources[index]
            ordinal = int(origins.encoded_shard(source, int(shard)).ordinals[document])
            names.add(":".join(map(str, (source, *origins.corpus.lookup(source, int(shard), ordinal)))))
        return names

    def lost(self, mixture, **options):
        """Why documents of a mixture have no piece in a packing, by name."""
        found = absences(self.packed(mixture, **options))
        return {name: why for name, why in found.items() if name in self.drawn(mixture)}


@pytest.fixture(scope="module")
def packings(traced, tmp_path_factory):
    return Packings(traced, tmp_path_factory.mktemp("absent") / "store")


def absences(origins, names=NAMES):
    """The documents without a piece, each with the reason."""
    traced = [(name, document) for name in names for document in trace_document(origins, name)]
    return {name: document.absent for name, document in traced if document.absent}


def test_what_the_mixture_did_not_draw(packings):
    mixture = packings.mixed()
    origins = packings.packed(mixture)
    found = absences(origins)
    assert found.keys() == NAMES - packings.drawn(mixture)
    assert any(name.startswith("notes") for name in found)
    assert all("did not draw it" in why for why in found.values())
    assert "no tokens of source 'essays'" in absences(origins, ["essays:essay.txt:0"])["essays:essay.txt:0"]


def test_what_packing_left_out(packings):
    too_long = packings.lost(packings.mixed(), long_documents="drop")
    assert "web:pages.jsonl:1" in too_long
    assert all("pack.sequence_length=32" in why for why in too_long.values())
    mixture = packings.mixed({"essays": 0, "notes": 1, "web": 0}, None)
    length = Mixture.open(packings.store.path(mixture)).manifest.num_tokens // 2 + 1
    at_end = packings.lost(mixture, strategy="concat", last_sequence="drop", sequence_length=length)
    assert at_end
    assert all("pack.last_sequence" in why for why in at_end.values())


def test_what_was_consumed_or_taken_down_before(packings):
    make, tokens = packings.make, packings.tokens
    taken = find_documents(packings.origins, ["web:twin"])[0]
    documents = listed([TakenDocument(**taken._asdict())])
    without = {"mixture": packings.mixed(), "documents": documents}
    mixture = make(EXCLUDE, TakedownParams(), **without, **tokens)
    total = Mixture.open(packings.store.path(mixture)).manifest.num_tokens
    read = {"mixture": mixture, "packed": packings.packed(mixture).packed.ref}
    ledger = make(CONSUME, ConsumeParams(consumed_tokens=total), **read, **tokens)
    rest = packings.mixed(total_tokens=total + 20, ledger=ledger)
    found = absences(packings.packed(rest))
    consumed = {name for name, why in found.items() if "consumed before" in why}
    assert consumed == packings.drawn(mixture) - packings.drawn(rest)
    assert consumed
    assert "taken down before" in found[f"web:{taken.file}:{taken.row}"]
