"""From packed tokens back to their lines, from documents to their tokens, and why there are none."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_tasks.traced_line import ESSAY, NOTES, SPECIALS, SPECS, WEB, TracedLine, traced_line
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


MIX_OPTIONS = {"weights": {"essays": 0, "notes": 1, "web": 9}, "total_tokens": 300}
NOTE_NAMES = tuple(f"notes:notes.txt:{row}" for row in (0, 1, 3))
WEB_NAMES = tuple(f"web:pages.jsonl:{row}" for row in (0, 1, 2, 3, 4, 7))


@dataclass(frozen=True)
class Packings:
    """Packs mixtures of one encoding in one store."""

    traced: TracedLine
    line: Line

    def tokens(self):
        """The encoding, as the stages after it take it."""
        encoded = self.traced.made["encoded"]
        return {"encoded": encoded, "shards": self.traced.store.record(encoded).refs("shards")}

    def packed(self, mixture, **options):
        """The origins of a packing of a mixture."""
        params = PackParams(**{"sequence_length": 32, "strategy": "greedy"} | options)
        return Origins.of(self.traced.store, self.line.packed(params, mixture, self.tokens()))

    def drawn(self, mixture):
        """Source and row of every document in a mixture's plan."""
        origins = Origins.of(self.traced.store, self.traced.packed)
        found = Mixture.open(self.traced.store.path(mixture))
        plan = found.plan()
        rows = set()
        for index, shard, document in zip(plan.source, plan.shard, plan.document, strict=True):
            source = found.sources[index]
            ordinal = int(origins.encoded_shard(source, int(shard)).ordinals[document])
            file, row = origins.corpus.lookup(source, int(shard), ordinal)
            rows.add(f"{source}:{file}:{row}")
        return rows


@pytest.fixture(scope="module")
def packings(tmp_path_factory):
    """No essay is drawn, and few notes."""
    traced = traced_line(tmp_path_factory.mktemp("absent"), mix=MIX_OPTIONS)
    return Packings(traced, Line(traced.store, traced.texts, SPECS))


def absences(origins, names=(*NOTE_NAMES, *WEB_NAMES)):
    """The documents without a piece, each with the reason."""
    traced = [(name, document) for name in names for document in trace_document(origins, name)]
    return {name: document.absent for name, document in traced if document.absent}


def test_what_the_mixture_did_not_draw(packings):
    mixture = packings.traced.made["mixture"]
    found = absences(packings.packed(mixture))
    assert set(found) == {*NOTE_NAMES, *WEB_NAMES} - packings.drawn(mixture)
    assert any(name in NOTE_NAMES for name in found)
    for name, why in found.items():
        assert "mixture/line@v1 did not draw it" in why, name
    origins = packings.packed(mixture)
    assert "no tokens of source 'essays'" in absences(origins, ["essays:essay.txt:0"])["essays:essay.txt:0"]


def test_what_is_too_long_for_a_sequence(packings):
    mixture = packings.traced.made["mixture"]
    found = absences(packings.packed(mixture, long_documents="drop"))
    dropped = {name: why for name, why in found.items() if name in packings.drawn(mixture)}
    assert "web:pages.jsonl:1" in dropped
    for why in dropped.values():
        assert "pack.sequence_length=32" in why


def test_what_is_in_the_last_sequence_alone(packings):
    params = MixParams(weights={"essays": 0, "notes": 1, "web": 0})
    mixture = packings.line.make(MIX, params, **packings.tokens())
    length = Mixture.open(packings.traced.store.path(mixture)).manifest.num_tokens // 2 + 1
    options = {"strategy": "concat", "last_sequence": "drop", "sequence_length": length}
    found = absences(packings.packed(mixture, **options))
    dropped = {name: why for name, why in found.items() if name in packings.drawn(mixture)}
    assert dropped
    for why in dropped.values():
        assert "pack.last_sequence" in why


def test_what_was_consumed_or_taken_down_before(packings):
    store, line, tokens = packings.traced.store, packings.line, packings.tokens()
    origins = Origins.of(store, packings.traced.packed)
    taken = find_documents(origins, ["web:twin"])[0]
    fields = {name: getattr(taken, name) for name in TakenDocument.model_fields}
    documents = listed([TakenDocument(**fields)])
    drawn = packings.traced.made["mixture"]
    mixture = line.make(EXCLUDE, TakedownParams(), mixture=drawn, documents=documents, **tokens)
    before = packings.drawn(mixture)
    total = Mixture.open(store.path(mixture)).manifest.num_tokens
    packed = packings.packed(mixture).packed.ref
    consumed = ConsumeParams(consumed_tokens=total)
    ledger = line.make(CONSUME, consumed, mixture=mixture, packed=packed, **tokens)
    later = MixParams(weights={"essays": 0, "notes": 1, "web": 9}, total_tokens=total + 20)
    rest = line.make(MIX, later, ledger=ledger, **tokens)
    found = absences(packings.packed(rest))
    consumed = {name for name, why in found.items() if "consumed before" in why}
    assert consumed == before - packings.drawn(rest)
    assert consumed
    assert "taken down before" in found[f"web:{taken.file}:{taken.row}"]
