"""Packed shards and exports: round trips in every format, boundaries, masks, provenance, refusals."""

import json
import pickle
import re
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import (
    encoded_corpus,
    made,
    mix_corpus,
    numbered,
    pack_mixture,
    packed_corpus,
)
from tests.test_tasks.reading import files_in
from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.packed.reader import PackedReader, Sequence
from tokmill.tasks.formats.packed.shard_format import FORMATS
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.packing.stage import PACK_PLAN, PACK_SHARD, PackParams

DOCUMENTS = {
    "a": [numbered([5, 30, 2]), numbered([9, 9], first=100)],
    "b": [numbered([17, 3], first=200)],
}
MIXING = {"max_repetition": 2, "temperature": 3.0}
ALL_FORMATS = get_args(PackedFormat)
SELECTIONS = (*((name,) for name in ALL_FORMATS), ALL_FORMATS)


def packed(folder, documents=DOCUMENTS, vocab_size=256, mixing=MIXING, **params):
    return packed_corpus(folder, documents, mixing, vocab_size, end_id=7, **params)


def test_what_a_sequence_says_by_hand():
    """|dddd ee .|: two pieces of 4 and 2 tokens, and two of padding."""
    sequence = Sequence(np.arange(8, dtype=np.uint16), np.array([0, 4, 6], dtype=np.int32))
    assert sequence.segment_ids.tolist() == [1, 1, 1, 1, 2, 2, 0, 0]
    assert sequence.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 0, 0]
    assert sequence.loss_mask.tolist() == [False, True, True, True, False, True, False, False]
    assert sequence.labels.tolist() == [-100, 1, 2, 3, -100, 5, -100, -100]
    assert sequence.num_tokens == 6


def assert_equals_the_source(corpus, reader, pad_id=7):
    """Every sequence is its pieces' tokens, then padding; boundaries and provenance agree."""
    assert len(list(reader)) == len(reader)
    for index in range(len(reader)):
        sequence, pieces = reader[index], reader.provenance(index)
        tokens = []
        for piece in pieces:
            assert piece.start == len(tokens)
            document = corpus.tokens(piece.source, piece.shard, piece.document)
            tokens += document[piece.document_start : piece.document_start + piece.length]
            assert piece.ordinal == 2 * piece.document
        assert sequence.num_tokens == len(tokens)
        assert sequence.cu_seqlens.tolist() == [0, *(piece.start + piece.length for piece in pieces)]
        tokens += [pad_id] * (reader.manifest.sequence_length - len(tokens))
        assert sequence.input_ids.tolist() == tokens


WIDE = {"a": [numbered([40], first=65_500, vocab_size=70_000)]}


@pytest.mark.parametrize("formats", SELECTIONS)
@pytest.mark.parametrize(
    ("documents", "vocab_size", "strategy"),
    [(DOCUMENTS, 256, "concat"), (DOCUMENTS, 256, "best_fit"), (WIDE, 70_000, "concat")],
    ids=["concat", "best_fit", "wide"],
)
def test_the_reader_gives_back_the_documents(tmp_path, formats, documents, vocab_size, strategy):
    params = {"sequence_length": 8, "strategy": strategy, "sequences_per_shard": 4, "formats": formats}
    corpus, outcome, path = packed(tmp_path, documents, vocab_size=vocab_size, **params)
    reader = PackedReader.open(path)
    assert len(reader) == outcome.metrics["num_sequences"]
    assert reader[0].input_ids.dtype == (np.uint16 if vocab_size == 256 else np.uint32)
    assert_equals_the_source(corpus, reader)
    expected = [sequence.input_ids.tolist() for sequence in reader]
    elsewhere = pickle.loads(pickle.dumps(reader))  # as in another process
    assert [sequence.input_ids.tolist() for sequence in elsewhere] == expected


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    sequence_length=st.integers(8, 30),
    per_shard=st.integers(1, 5),
    strategy=st.sampled_from(["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]),
)
def test_every_token_comes_back_once(tmp_path_factory, lengths, sequence_length, per_shard, strategy):
    folder = tmp_path_factory.mktemp("packed")
    params = {"sequence_length": sequence_length, "sequences_per_shard": per_shard, "strategy": strategy}
    corpus, _, path = packed(folder, {"a": [numbered(lengths)]}, mixing={}, **params)
    reader = PackedReader.open(path)
    assert_equals_the_source(corpus, reader)
    seen = {}
    for index in range(len(reader)):
        for piece in reader.provenance(index):
            place = seen.setdefault(piece.document, [])
            place += range(piece.document_start, piece.document_start + piece.length)
    assert {document: sorted(places) for document, places in seen.items()} == {
        k: list(range(length)) for k, length in enumerate(lengths) if length
    }


@pytest.mark.parametrize("strategy", ["concat", "best_fit"])
def test_the_bytes_do_not_depend_on_the_blocks_that_are_written(tmp_path, monkeypatch, strategy):
    common = {"sequence_length": 8, "strategy": strategy, "formats": ALL_FORMATS}
    monkeypatch.setattr("tokmill.tasks.formats.packed.shard_format._GROUP_TOKENS", 16)
    _, _, whole = packed(tmp_path / "whole", **common)
    monkeypatch.setattr("tokmill.tasks.packing.write._BLOCK_TOKENS", 48)
    _, _, cut = packed(tmp_path / "cut", **common)
    assert {name: data for name, data in files_in(whole).items() if "pieces" not in name} == {
        name: data for name, data in files_in(cut).items() if "pieces" not in name
    }
    pieces = "__pieces__/pieces-00000.parquet"
    assert pq.read_table(whole / pieces) == pq.read_table(cut / pieces)


def test_shards_are_linked_not_copied(tmp_path):
    _, _, path = packed(tmp_path, sequence_length=8)
    assert (path / "shard-00000.bin").stat().st_nlink == 2


def joined_by_hand(reader, times, pad_id):
    """Pieces of `times` sequences one after the other, those that go on put together, as the reader says."""
    length = reader.manifest.sequence_length * times
    for first in range(0, len(reader), times):
        tokens, ends, starts, last = [], [0], [], None
        for index in range(first, min(first + times, len(reader))):
            ids = reader[index].input_ids.tolist()
            for piece in reader.provenance(index):
                tokens += ids[piece.start : piece.start + piece.length]
                document = (piece.source, piece.shard, piece.document, piece.epoch)
                if last == (*document, piece.document_start):
                    ends.pop()
                else:
                    starts.append(piece.document_start)
                ends.append(len(tokens))
                last = (*document, piece.document_start + piece.length)
        yield [tokens + [pad_id] * (length - len(tokens)), ends, starts]


@pytest.mark.parametrize("strategy", ["concat", "greedy", "best_fit", "pad"])
@pytest.mark.parametrize("times", [1, 2, 3, 5])
def test_a_packing_can_be_read_at_multiples_of_its_length(tmp_path, strategy, times):
    _, _, path = packed(tmp_path, sequence_length=8, strategy=strategy, sequences_per_shard=4)
    reader = PackedReader.open(path)
    joined = reader.at_length(8 * times)
    expected = list(joined_by_hand(reader, times, 7))
    found = [
        [*map(np.ndarray.tolist, (one.input_ids, one.cu_seqlens, one.document_starts))] for one in joined
    ]
    assert found == expected
    assert len(joined) == len(expected)
    assert joined[-1].input_ids.tolist() == found[-1][0]
    with pytest.raises(IndexError, match="tokens"):
        joined[len(joined)]


@pytest.mark.parametrize("formats", SELECTIONS)
def test_what_no_token_of_its_piece_predicts_is_not_in_the_loss_in_any_format(tmp_path, formats):
    params = {"mixing": {}, "sequence_length": 8, "strategy": "greedy", "formats": formats}
    _, _, path = packed(tmp_path, {"a": [numbered([20, 3])]}, **params)
    reader = PackedReader.open(path)
    for index, sequence in enumerate(reader):
        begins = {piece.start for piece in reader.provenance(index)}
        counted = [place for place in range(sequence.num_tokens) if place not in begins]
        assert np.flatnonzero(sequence.loss_mask).tolist() == counted
        assert np.flatnonzero(sequence.labels != -100).tolist() == counted
        assert sequence.labels[counted].tolist() == sequence.input_ids[counted].tolist()


def test_indices_count_from_the_end_too_and_padding_is_the_end_token_unless_said_otherwise(tmp_path):
    for pad_id, expected in ((None, 7), (9, 9)):
        folder = tmp_path / str(expected)
        _, _, path = packed(folder, {"a": [numbered([9])]}, mixing={}, sequence_length=8, pad_id=pad_id)
        reader = PackedReader.open(path)
        assert reader[1].input_ids.tolist() == reader[-1].input_ids.tolist() == [7] + [expected] * 7
    for index in (2, -3):
        with pytest.raises(IndexError, match="the artifact has 2 sequences"):
            reader[index]
    for length in (4, 12, 0, -8):
        with pytest.raises(PackingError, match=f"sequence_length={length} must be a multiple of .* own 8"):
            reader.at_length(length)


ONE = {"a": [numbered([20, 20])]}


def plan_and_corpus(folder, documents, **options):
    corpus = encoded_corpus(folder / "corpus", documents, **options)
    inputs = {"mixture": mix_corpus(corpus, folder), **corpus.inputs}
    made(PACK_PLAN, PackParams(sequence_length=8).plan_params(), folder / "plan", **inputs)
    return corpus, folder / "plan"


@pytest.mark.parametrize(
    ("planned", "encoded", "options", "message"),
    [
        (ONE, {"a": [numbered([20])]}, {}, r"document 1, which the encoded shard .* does not have"),
        ({"a": [numbered([20])] * 2}, {"a": [numbered([20])]}, {}, "shard 1 of source 0, which is"),
        (ONE, ONE, {"vocab_size": 70_000}, "uint32 tokens, the plan says uint16"),
    ],
    ids=["document", "shard", "width"],
)
def test_an_encoding_that_is_not_the_plans_is_refused(tmp_path, planned, encoded, options, message):
    _, plan = plan_and_corpus(tmp_path / "one", planned)
    other, _ = plan_and_corpus(tmp_path / "two", encoded, **options)
    with pytest.raises(PackingError, match=message):
        made(PACK_SHARD, PackParams().shard_params(0), tmp_path / "part", plan=plan, **other.inputs)


@pytest.mark.parametrize(
    ("place", "token", "message"),
    [
        (3, 256, "token id 256 must be below vocab_size=256"),
        (19, 9, "does not end with token 7 but with 9; encode again"),
    ],
)
def test_tokens_that_cannot_be_are_refused(tmp_path, place, token, message):
    corpus, plan = plan_and_corpus(tmp_path, ONE, end_id=7)
    tokens = np.load(corpus.shards[0] / "tokens.npy")
    tokens[place] = token
    np.save(corpus.shards[0] / "tokens.npy", tokens)
    with pytest.raises(PackingError, match=message):
        made(PACK_SHARD, PackParams().shard_params(0), tmp_path / "part", plan=plan, **corpus.inputs)


def test_an_encoded_shard_with_another_digest_is_refused(tmp_path):
    corpus = encoded_corpus(tmp_path / "corpus", {"a": [numbered([20, 20])]})
    mixture = mix_corpus(corpus, tmp_path)
    tokens = corpus.shards[0] / "tokens.npy"
    data = bytearray(tokens.read_bytes())
    data[-1] ^= 1
    tokens.write_bytes(data)
    with pytest.raises(
        PackingError, match=r"shard 0 of source 'a' .* has the content digest .* changed or damaged"
    ):
        made(PACK_PLAN, PackParams().plan_params(), tmp_path / "plan", mixture=mixture, **corpus.inputs)


@pytest.mark.parametrize(
    "kind", [known for known in FORMATS if known.name != "memmap"], ids=lambda one: one.name
)
@pytest.mark.parametrize("content", [b"", b"something else" * 20])
def test_a_broken_file_is_named(tmp_path, kind, content):
    _, _, path = packed(tmp_path, sequence_length=8, formats=[kind.name])
    name = kind.names[-1].format("00000")
    (path / name).write_bytes(content)
    with pytest.raises(StoreError, match=re.escape(name)):
        PackedReader.open(path)[0]


COMMON = {"sequence_length": 16, "strategy": "best_fit", "sequences_per_shard": 3}


def exported(packed, formats, folder):
    shards = []
    for entry in PackedManifest.open(packed).shards:
        shards.append(folder / f"part-{entry.index}")
        made(EXPORT_SHARD, ExportShardParams(index=entry.index, formats=formats), shards[-1], packed=packed)
    out = folder / "exported"
    return made(EXPORT, ExportParams(formats=formats), out, packed=packed, shards=shards), out


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """Packs the same documents in the formats that it is given."""
    folder = tmp_path_factory.mktemp("packed")
    corpus = encoded_corpus(folder / "corpus", {"a": [numbered([5, 40, 2, 9, 17, 30, 3, 3])]}, end_id=7)
    mixture = mix_corpus(corpus, folder)

    def packed(formats):
        out = folder / str(len(list(folder.iterdir())))
        return pack_mixture(corpus, mixture, out, formats=formats, **COMMON)[1]

    return packed


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_every_format_becomes_every_other(tmp_path, pack, name):
    outcome, out = exported(pack((name,)), ALL_FORMATS, tmp_path)
    assert outcome.metrics["formats"] == ", ".join(ALL_FORMATS)
    assert files_in(out) == files_in(pack(ALL_FORMATS))


def test_the_manifest_lists_the_new_formats_alone(tmp_path, pack):
    packed = pack(("memmap",))
    _, out = exported(packed, ("npy", "mds"), tmp_path)
    mine, its = (json.loads((path / "packed.json").read_text()) for path in (packed, out))
    assert its == mine | {"formats": ["mds", "npy"]}


def test_a_shard_over_four_gigabytes_is_refused_as_mds(tmp_path, pack, monkeypatch):
    monkeypatch.setattr("tokmill.tasks.formats.packed.mds._MOST_BYTES", 300)
    with pytest.raises(PackingError, match=r"which must be at most 300 .* lower sequences_per_shard"):
        exported(pack(("memmap",)), ("mds",), tmp_path)
