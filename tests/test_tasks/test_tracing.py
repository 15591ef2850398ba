"""From packed tokens back to their lines, and from documents to all of their tokens, through a whole line."""

import shutil
from pathlib import Path

import pytest

from tests.test_tasks.traced_line import ESSAY, NOTES, SPECIALS, WEB, traced_line
from tokmill.tasks.core.errors import SourceError, StoreError, TracingError
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.store import Store
from tokmill.tasks.tracing import Origins, find_documents, trace_document, trace_sequence


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """Not to be changed."""
    return traced_line(tmp_path_factory.mktemp("traced"))


@pytest.fixture(scope="module")
def origins(line):
    return Origins.of(line.store, line.packed)


def text_of(source, row):
    """The text of a document by its place."""
    return {"web": [page["text"] for page in WEB], "notes": NOTES, "essays": [ESSAY]}[source][row]


def every_piece(origins):
    for index in range(len(origins.reader)):
        for piece in trace_sequence(origins, index).pieces:
            yield index, piece


class TestSequence:
    def test_every_piece_leads_to_the_text_that_it_is(self, origins):
        seen = set()
        for _, piece in every_piece(origins):
            text = text_of(piece.source, piece.row).encode()
            first, stop = piece.bytes
            assert text[first:stop].decode("utf-8", "replace") == piece.text
            if piece.document_start + piece.num_document_tokens == piece.document_length:
                assert stop == len(text)
            assert Path(piece.path).name == piece.file
            seen.add((piece.source, piece.row))
        assert {source for source, _ in seen} == {"essays", "notes", "web"}

    def test_the_pieces_fill_the_sequence_up_to_its_padding(self, origins):
        for index in range(len(origins.reader)):
            traced = trace_sequence(origins, index)
            at = 0
            for piece in traced.pieces:
                assert piece.start == at
                at += piece.length
            assert at == traced.num_tokens
            assert traced.num_tokens + traced.num_padding_tokens == traced.sequence_length == 32

    def test_a_piece_is_named_as_it_can_be_asked_for(self, origins):
        names = {piece.name: piece for _, piece in every_piece(origins)}
        assert {"web:first", "web:pages.jsonl:2", "notes:notes.txt:1", "essays:essay.txt:0"} <= set(names)
        assert names["web:first"].place == "pages.jsonl, row 0 (line 1)"
        assert names["web:pages.jsonl:2"].id is None
        assert names["essays:essay.txt:0"].place == "essay.txt"
        for name, piece in names.items():
            places = [(found.source, found.shard, found.ordinal) for found in find_documents(origins, [name])]
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
        assert [(found.file, found.row) for found in trace_document(origins, "web:twin")] == [
            ("pages.jsonl", 3),
            ("pages.jsonl", 4),
        ]

    def test_an_own_id_wins_over_a_place(self, origins):
        (own,) = trace_document(origins, "web:notes.txt:1")
        assert own.row == 7
        (place,) = trace_document(origins, "notes:notes.txt:1")
        assert (place.source, place.row) == ("notes", 1)

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
    def test_another_kind_is_refused(self, line):
        with pytest.raises(TracingError, match="corpus/line is not a packed artifact"):
            Origins.of(line.store, line.made["corpus"])

    def test_files_that_are_gone(self, line, tmp_path):
        shutil.copytree(line.texts, tmp_path / "texts")
        moved = tmp_path / "moved"
        shutil.copytree(line.texts / "web", moved)
        line.texts.rename(line.texts.with_name("gone"))
        try:
            without = Origins.of(line.store, line.packed)
            pieces = [piece for _, piece in every_piece(without)]
            assert {piece.id for piece in pieces} == {None}
            assert "web:pages.jsonl:0" in {piece.name for piece in pieces}
            with pytest.raises(SourceError, match=r"pages\.jsonl"):
                trace_document(without, "web:first")
            there = Origins.of(line.store, line.packed, {"web": moved})
            assert trace_document(there, "web:first")[0].row == 0
        finally:
            line.texts.with_name("gone").rename(line.texts)

    def test_files_that_changed(self, line, tmp_path):
        changed = tmp_path / "web"
        shutil.copytree(line.texts / "web", changed)
        pages = (changed / "pages.jsonl").read_text("utf-8")
        (changed / "pages.jsonl").write_text(pages.replace("rivers", "RIVERS"), "utf-8")
        with pytest.raises(SourceError, match="changed"):
            trace_document(Origins.of(line.store, line.packed, {"web": changed}), "web:first")

    def test_an_artifact_that_is_gone_is_named(self, line, tmp_path):
        shutil.copytree(line.store.root, tmp_path / "store")
        store = Store.open(tmp_path / "store")
        shutil.rmtree(store.path(line.made["corpus"]))
        origins = Origins.of(store, line.packed)
        assert len(origins.reader) == len(PackedReader.open(line.store.path(line.packed)))
        with pytest.raises(StoreError, match="goes back to corpus/line, which is not in the store any more"):
            trace_sequence(origins, 0)
