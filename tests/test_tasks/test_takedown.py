"""Takedowns: nothing of the documents is left, nothing else changes, and it all adds up."""

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import made, numbered, packed_corpus, published
from tokmill.tasks.core.errors import MixingError, SourceError, StoreError, TracingError
from tokmill.tasks.embeddings.resize import read_json
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedFormat, TakedownManifest
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.packing.export import EXPORT_SHARD, ExportShardParams
from tokmill.tasks.store.digest import FileDigests
from tokmill.tasks.takedown.request import read_names, take_down
from tokmill.tasks.takedown.stage import TAKEDOWN, TakedownParams
from tokmill.tasks.tracing import Origins, find_documents, trace_document

FORMATS = list(get_args(PackedFormat))
DOCUMENTS = {
    "a": [numbered([5, 30, 2]), numbered([9, 9], first=100)],
    "b": [numbered([17, 3], first=200)],
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Sequences in several shards, in every format; not to be changed."""
    folder = tmp_path_factory.mktemp("packed")
    options = {"sequence_length": 8, "sequences_per_shard": 3, "formats": FORMATS, "end_id": 7}
    mix = {"max_repetition": 3, "temperature": 3.0}
    return published(packed_corpus(folder, DOCUMENTS, mix, **options)[2], folder / "store")


def taken_down(packed, out, places):
    """Take down documents by (source, shard, position); an ordinal is twice the position."""
    fields = ("name", "source", "file", "row", "shard", "ordinal")
    every = ((f"{source}:{k}", source, "f", k, shard, 2 * k) for source, shard, k in places)
    documents = [dict(zip(fields, each, strict=True)) for each in every]
    return made(TAKEDOWN, TakedownParams(), out, packed=packed, documents=documents)


def content(reader, index):
    """A sequence's pieces, each with its tokens and where it is from."""
    sequence = reader[index]
    return [
        (
            (piece.source, piece.shard, piece.document, piece.document_start, piece.epoch),
            sequence.input_ids[piece.start : piece.start + piece.length].tolist(),
        )
        for piece in reader.provenance(index)
    ]


PLACES = [
    (source, shard, k)
    for source, shards in DOCUMENTS.items()
    for shard, part in enumerate(shards)
    for k in range(len(part))
]


@settings(max_examples=12)
@given(places=st.sets(st.sampled_from(PLACES), min_size=1))
@example(places=set(PLACES))
def test_what_is_left_is_all_but_the_documents(packed, tmp_path_factory, places):
    out = tmp_path_factory.mktemp("takedown") / "out"
    outcome = taken_down(packed, out, places)
    before, after = PackedReader.open(packed), PackedReader.open(out)
    assert len(before) == len(after)
    num_taken = 0
    for index in range(len(before)):
        expected = [piece for piece in content(before, index) if piece[0][:3] not in places]
        assert content(after, index) == expected
        tokens = [token for _, its in expected for token in its]
        assert after[index].input_ids.tolist() == tokens + [7] * (8 - len(tokens))
        assert after[index].num_tokens == len(tokens) == after[index].cu_seqlens[-1]
        num_taken += before[index].num_tokens - len(tokens)
        if expected == content(before, index):
            assert after[index].input_ids.tolist() == before[index].input_ids.tolist()
    assert outcome.metrics["num_taken_down_tokens"] == num_taken > 0
    assert after.manifest.num_tokens == before.manifest.num_tokens - num_taken
    assert after.manifest.num_padding_tokens == before.manifest.num_padding_tokens + num_taken
    assert all(account.balanced for account in outcome.accounts)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_artifact_of_one_format_alone(packed, tmp_path, kind):
    """What was exported to one format can be taken down from as well."""
    manifest = PackedReader.open(packed).manifest
    made(EXPORT_SHARD, ExportShardParams(index=0, formats=[kind]), tmp_path / "part", packed=packed)
    alone = published(tmp_path / "part", tmp_path / "store")
    taken_down(alone, tmp_path / "out", PLACES[:2])
    taken_down(packed, tmp_path / "whole", PLACES[:2])
    found, expected = PackedReader.open(tmp_path / "out"), PackedReader.open(tmp_path / "whole")
    assert len(found) == manifest.shards[0].num_sequences
    for index in range(len(found)):
        assert content(found, index) == content(expected, index)
        assert found[index].input_ids.tolist() == expected[index].input_ids.tolist()


def test_shards_without_the_documents_are_the_same_files(packed, tmp_path):
    outcome = taken_down(packed, tmp_path / "out", [("b", 0, 1)])
    changed = {index // 3 for index in TakedownManifest.open(tmp_path / "out").changed_sequences}
    shards = PackedReader.open(packed).manifest.shards
    assert 0 < len(changed) < len(shards)
    assert outcome.metrics["num_changed_shards"] == len(changed)
    for shard in shards:
        names = [f"shard-{shard.index:05d}.bin", f"__pieces__/pieces-{shard.index:05d}.parquet"]
        same = [(packed / name).samefile(tmp_path / "out" / name) for name in names]
        assert same == [shard.index not in changed] * 2


def test_the_accounts_by_hand(tmp_path):
    """|aaaaa bb|bb cccc..|: the middle document goes, two of its four tokens from each sequence."""
    lengths = [5, 4, 4]
    *_, path = packed_corpus(tmp_path, {"s": [numbered(lengths)]}, sequence_length=8)
    middle = PackedReader.open(path).provenance(0)[1].document
    source = published(path, tmp_path / "store")
    outcome = taken_down(source, tmp_path / "out", [("s", 0, middle)])
    documents, tokens, whole = outcome.accounts
    assert documents.became == {"packed": 2, "taken_down": 1}
    assert tokens.became == {"packed": 13 - lengths[middle], "taken_down": lengths[middle]}
    assert whole.became["padding"] == 3 + lengths[middle]
    table = pq.read_table(tmp_path / "out" / "taken_down.parquet").to_pylist()
    assert sum(row["length"] for row in table) == lengths[middle]
    assert {row["ordinal"] for row in table} == {2 * middle}


class TestThroughTheStore:
    def test_a_new_version_with_its_lineage(self, copied):
        taken = take_down(copied, ["web:twin", "essays:essay.txt"])
        assert taken.record.reference == "packed/line@v2"
        assert taken.made
        assert [document.row for document in taken.documents] == [0, 3, 4]
        entry = next(entry for entry in taken.record.inputs if entry.role == "packed")
        assert entry.digest == copied.packed.content_digest
        said = TakedownManifest.open(copied.store.path(taken.record.ref))
        places = [(one.source, one.shard, one.ordinal) for one in said.documents]
        names = ("essays:essay.txt", "web:twin")
        assert places == [found[:3] for name in names for found in find_documents(copied, [name])]
        assert said.predecessors == (copied.packed.content_digest,)
        after = Origins.of(copied.store, taken.record.ref)
        for name in names:
            for traced in trace_document(after, name):
                assert not traced.pieces
                assert traced.absent == "it was taken down in packed/line@v2"
        assert trace_document(after, "web:second")[0].pieces

    def test_what_is_gone_already_is_said(self, copied):
        taken = take_down(copied, ["web:first", "web:tiny"])
        assert [document.name for document, _ in taken.absent] == ["web:tiny"]
        after = Origins.of(copied.store, taken.record.ref)
        again = take_down(after, ["web:first"])
        assert again.record is None
        assert [why for _, why in again.absent] == ["it was taken down in packed/line@v2"]
        further = take_down(after, ["web:second"])
        assert further.record.label == "v3"
        last = Origins.of(copied.store, further.record.ref)
        assert trace_document(last, "web:first")[0].absent == "it was taken down in packed/line@v2"

    def test_one_unknown_name_stops_everything(self, copied):
        with pytest.raises(TracingError, match=r"'web:nobody' is not a document .* \(and 1 more: .web:none"):
            take_down(copied, ["web:first", "web:nobody", "web:none"])
        assert copied.store.newest("packed", "line").label == "v1"

    def test_damage_is_not_passed_on(self, copied):
        (tokens,) = copied.path.glob("shard-00000.bin")
        data = bytearray(tokens.read_bytes())
        data[3] ^= 1
        tokens.unlink()
        tokens.write_bytes(data)
        with pytest.raises(StoreError, match=r"packed/line@v1: shard-00000\.bin has digest"):
            take_down(copied, ["web:first"])

    def test_training_goes_on_with_the_new_version(self, copied):
        before = PackedDataset(copied.path, batch_size=2, shuffle=True)
        iterator = iter(before)
        seen = [next(iterator)["sequence"].tolist() for _ in range(3)]
        taken = take_down(copied, ["web:second"])
        twice = take_down(Origins.of(copied.store, taken.record.ref), ["web:first"])
        after = PackedDataset(copied.store.path(twice.record.ref), batch_size=2, shuffle=True)
        after.load_state_dict(before.state_dict())
        rest = [batch["sequence"].tolist() for batch in after]
        whole = PackedDataset(copied.path, batch_size=2, shuffle=True)
        assert seen + rest == [batch["sequence"].tolist() for batch in whole]


class TestRepacking:
    def test_it_is_packed_as_if_they_had_not_been_drawn(self, copied):
        taken = take_down(copied, ["web:second", "essays:essay.txt"], repacked=True)
        assert taken.record.reference == "packed/line@v2"
        after = Origins.of(copied.store, taken.record.ref)
        assert len(after.reader) < len(copied.reader)
        gone = {(document.source, document.shard, document.ordinal) for document in taken.documents}
        before = [piece for piece in drawn_tokens(copied) if piece[0][:3] not in gone]
        assert drawn_tokens(after) == before
        for name in ("web:second", "essays:essay.txt"):
            (traced,) = trace_document(after, name)
            assert traced.absent == "it was left out of the mixture when packed/line@v2 was packed again"
        numbers = [each.became["taken_down"] for each in taken.accounts if each.unit == "documents"]
        assert sum(numbers) == sum(piece[0][:3] in gone for piece in drawn_tokens(copied))

    def test_asked_for_again_it_is_found(self, copied):
        first = take_down(copied, ["web:twin", "web:first"], repacked=True)
        again = take_down(copied, ["web:first", "web:twin"], repacked=True)
        assert (first.made, again.made) == (True, False)
        assert first.record.fingerprint == again.record.fingerprint

    @pytest.mark.slow
    def test_what_was_taken_down_before_stays_away(self, copied):
        padded = take_down(copied, ["web:first"])
        repacked = take_down(Origins.of(copied.store, padded.record.ref), ["web:second"], repacked=True)
        after = Origins.of(copied.store, repacked.record.ref)
        again = take_down(after, ["notes:notes.txt:0"], repacked=True)
        last = Origins.of(copied.store, again.record.ref)
        assert {place[0] for place in drawn_tokens(copied)} - {place[0] for place in drawn_tokens(last)}
        for name in ("web:first", "web:second", "notes:notes.txt:0"):
            (traced,) = trace_document(last, name)
            assert not traced.pieces
            assert "left out of the mixture" in traced.absent

    def test_the_mixture_s_figures_are_those_of_what_is_left(self, copied):
        taken = take_down(copied, ["web:second", "notes:notes.txt:1"], repacked=True)
        record = Origins.of(copied.store, taken.record.ref).ancestor("mixture")
        mixture = Mixture.open(copied.store.path(record.ref))
        plan, shares = mixture.plan(), mixture.shares()
        ends = np.cumsum(plan.num_tokens, dtype=np.int64)
        assert (mixture.manifest.num_documents, mixture.manifest.num_tokens) == (len(plan), ends[-1])
        for index, source in enumerate(mixture.manifest.sources):
            mine = plan.source == index
            assert source.drawn_documents == mine.sum()
            assert source.drawn_tokens == plan.num_tokens[mine].sum()
            first = mine & (plan.epoch == 0)
            assert source.unique_documents == first.sum()
            assert source.unique_tokens == plan.num_tokens[first].sum()
            for position, given_tokens in zip(shares.positions, shares.given[:, index], strict=True):
                before = mine & (ends - plan.num_tokens < position)
                assert given_tokens == plan.num_tokens[before].sum()

    def test_when_nothing_is_left_it_is_refused(self, copied):
        names = [f"web:pages.jsonl:{row}" for row in (0, 1, 2, 3, 4, 7)]
        names += ["notes:notes.txt:0", "notes:notes.txt:1", "notes:notes.txt:3", "essays:essay.txt"]
        with pytest.raises(MixingError, match="no document of the mixture is left"):
            take_down(copied, names, repacked=True)


def drawn_tokens(origins):
    """What was packed of each document each time, whatever the sequences: sorted [(place, epoch), tokens]."""
    found = {}
    for index in range(len(origins.reader)):
        sequence = origins.reader[index]
        for piece in origins.reader.provenance(index):
            tokens = sequence.input_ids[piece.start : piece.start + piece.length].tolist()
            place = (piece.source, piece.shard, piece.ordinal, piece.epoch)
            found.setdefault(place, []).append((piece.document_start, tokens))
    return sorted(
        (place, [token for _, its in sorted(parts) for token in its]) for place, parts in found.items()
    )


class TestLists:
    @pytest.mark.parametrize("read", [read_names, read_json, FileDigests(Path("unused")).digest])
    def test_a_file_that_a_person_names_is_a_regular_one(self, tmp_path, read):
        os.mkfifo(tmp_path / "fifo")  # who reads it waits for ever
        for file in (tmp_path / "fifo", Path("/dev/zero")):
            with pytest.raises(SourceError, match="name that file"):
                read(file)

    def test_a_line_is_a_name_as_it_is_but_for_blank_lines_and_comments(self, tmp_path):
        (tmp_path / "list.txt").write_bytes("\ufeffweb:a\u2028b\n\n# why\n \nweb:12 \r\n".encode())
        assert read_names(tmp_path / "list.txt") == ["web:a\u2028b", "web:12 "]
