"""Shares of the packed sequences: they hold all along the way, for every strategy, and are measured."""

import random
from collections import Counter

import numpy as np
import pytest

from tests.test_tasks.fabricated import (
    encoded_corpus,
    mix_corpus,
    numbered,
    pack_mixture,
    packed_by,
    packed_corpus,
)
from tokmill.tasks.formats.mixture import MixedSource, Mixture
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.packing.accounts import Shares, warnings

CAPACITY = 256
BLOCK = 64  # sequences


def very_different(num_tokens, shares, lengths, seed=0):
    """Documents whose sources keep shares(part of the way) exactly, each with lengths of its own."""
    dice = random.Random(seed)
    given_, asked, found = [0.0] * len(lengths), [0.0] * len(lengths), []
    while sum(given_) < num_tokens:
        now = shares(sum(given_) / num_tokens)
        source = min(range(len(now)), key=lambda k: (given_[k] - asked[k]) / now[k])
        length = max(1, round(dice.lognormvariate(np.log(lengths[source]), 0.7)))
        given_[source] += length
        asked = [old + length * share for old, share in zip(asked, now, strict=True)]
        found.append((source, length))
    return [list(column) for column in zip(*found, strict=True)]


CONSTANT = very_different(400_000, lambda _: (0.125, 0.1875, 0.6875), (6, 12, 900))
CHANGING = very_different(400_000, lambda x: (0.9 - 0.8 * x, 0.1 + 0.8 * x), (8, 600), seed=1)


def shares_by_block(pieces, sources, num_sources):
    """Token by token: of each block the share of each source, packed and in the plan: [blocks, sources]."""
    of_piece = np.array(sources)[pieces.document]
    packed = np.repeat(of_piece, pieces.length)
    in_plan = np.lexsort((pieces.document_start, pieces.document))
    planned = np.repeat(of_piece[in_plan], pieces.length[in_plan])
    edges = np.cumsum(np.bincount(pieces.sequence // BLOCK, weights=pieces.length)).astype(int)
    if len(edges) > 1 and 2 * (edges[-1] - edges[-2]) < edges[-2] - (edges[-3] if len(edges) > 2 else 0):
        edges = np.delete(edges, -2)
    return [
        [
            np.bincount(part, minlength=num_sources) / len(part)
            for part in np.split(tokens, edges[:-1].tolist())
        ]
        for tokens in (packed, planned)
    ]


def mixed(name, share):
    return MixedSource.model_construct(source=name, share=share, drawn_tokens=1)


def measured(sources, lengths, strategy, sizes):
    """What is measured of a packing in blocks of so many documents, and the packing's pieces."""
    num_sources, start = max(sources) + 1, 0
    shares, whole = (
        Shares(num_sources, CAPACITY, 0),
        packed_by(strategy, lengths, CAPACITY, sizes=sizes, sources=sources),
    )
    for size in sizes:
        mine = whole.only((whole.document >= start) & (whole.document < start + size))
        mine.document[:] -= start
        shares.add(np.array(sources[start : start + size], dtype=np.uint16), mine)
        start += size
    assert shares.block_sequences == BLOCK
    return shares.measured([mixed(name, 0.25) for name in "abc"[:num_sources]]), whole


@pytest.mark.parametrize("blocks", [(), (700, 300, 900)])
@pytest.mark.parametrize("documents", [CONSTANT, CHANGING], ids=["constant", "changing"])
@pytest.mark.parametrize("strategy", ["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"])
def test_shares_hold_in_every_block_of_sequences_and_are_measured(monkeypatch, strategy, documents, blocks):
    monkeypatch.setattr("tokmill.tasks.packing.accounts._BLOCK_TOKENS", 1)
    sources, lengths = documents
    found, pieces = measured(*documents, strategy, [*blocks, len(lengths) - sum(blocks)])
    packed, planned = shares_by_block(pieces, sources, max(sources) + 1)
    off = np.abs(np.array(packed) - planned)
    assert len(packed) > 20
    # Half a sequence more or less of a block's 64 are 0.8 points; no more than two of them are off.
    assert blocks or off.max() < 2 / BLOCK
    assert [share.deviation for share in found] == pytest.approx(off.max(axis=0).tolist(), abs=1e-6)
    total = np.bincount(np.array(sources)[pieces.document], weights=pieces.length) / pieces.num_tokens
    assert [share.packed_share for share in found] == pytest.approx(total.tolist(), abs=1e-6)


def packed(folder, documents, mix=None, **pack):
    return PackedReader.open(packed_corpus(folder, documents, mix, **pack)[2])


def test_shares_are_compared_with_what_was_asked_for(tmp_path):
    # One document of b is as long as a tenth of the run: the plan is off its request, and keeps to itself.
    by_source = {"a": [numbered([10] * 900)], "b": [numbered([900])]}
    mix = {"weights": {"a": 9, "b": 1}, "total_tokens": 9_000}
    reader = packed(tmp_path, by_source, mix, sequence_length=10, shuffle_window=0)
    a, b = reader.manifest.shares
    assert (a.deviation, b.deviation) == (0, 0)
    assert b.farthest is not None
    assert b.farthest.requested_share == pytest.approx(0.1)
    assert b.farthest.packed_share > 0.9
    first, block = b.farthest.first_sequence, reader.manifest.share_block_sequences
    pieces = [reader.provenance(k) for k in range(first, first + block)]
    of_b = sum(piece.length for found in pieces for piece in found if piece.source == "b")
    assert of_b / (10 * block) == pytest.approx(b.farthest.packed_share, abs=1e-6)


def test_a_deviation_over_the_limit_is_warned_of_with_the_way_out():
    shares = Shares(2, 10, 0)
    sources = [0] * 1280 + [1] * 1280
    pieces = packed_by("pad", [10] * 2560, 10, sources=sources)
    turned = pieces.only(np.arange(2559, -1, -1))
    turned.sequence[:] = np.arange(2560)
    shares.block_sequences = 256
    shares.add(np.array(sources, dtype=np.uint16), turned)
    found = shares.measured([mixed("a", 0.5), mixed("b", 0.5)])
    assert [share.deviation for share in found] == [1.0, 1.0]
    (message,) = warnings(found, "best_fit", 2560)
    assert "100.0 points" in message
    assert "lower pack.window" in message


def in_batches(reader, order, size=8):
    """Of each batch of sequences the largest part of one document, and the parts of the sources."""
    largest, shares = [], []
    for first in range(0, len(order) - size + 1, size):
        documents, sources = Counter(), Counter()
        for sequence in order[first : first + size]:
            for piece in reader.provenance(sequence):
                documents[piece.source, piece.document, piece.epoch] += piece.length
                sources[piece.source] += piece.length
        total = sum(sources.values())
        largest.append(max(documents.values()) / total)
        shares.append([sources[name] / total for name in reader.manifest.sources])
    return np.array(largest), np.array(shares)


LONG_AND_SHORT = very_different(24_000, lambda _: (0.4, 0.3, 0.3), (8, 40, 500), seed=2)


@pytest.mark.parametrize("strategy", ["concat", "greedy", "best_fit"])
def test_batches_in_order_are_as_mixed_as_those_of_a_full_shuffle(tmp_path, strategy):
    documents = [[length for of, length in zip(*LONG_AND_SHORT, strict=True) if of == k] for k in range(3)]
    by_source = {name: [numbered(its)] for name, its in zip("abc", documents, strict=True)}
    reader = packed(tmp_path, by_source, sequence_length=16, strategy=strategy)
    assert reader.manifest.shuffle_window == 1024
    largest, shares = in_batches(reader, range(len(reader)))
    dice = random.Random(0)
    shuffled = [in_batches(reader, dice.sample(range(len(reader)), len(reader))) for _ in range(2)]
    assert (largest > 0.5).mean() <= max((each > 0.5).mean() for each, _ in shuffled) + 0.01
    assert (shares.std(axis=0) <= max(each.std(axis=0).max() for _, each in shuffled)).all()
    # in 64 sequences each source has its share to within ten points; a full shuffle misses by up to twenty
    blocks = shares[: len(shares) // 8 * 8].reshape(-1, 8, 3).mean(axis=1)
    assert np.abs(blocks - blocks.mean(axis=0)).max() < 0.1


def test_rare_sources_do_not_come_together(tmp_path):
    # each of 300 sources has a single sequence, which would be due in the middle
    by_source = {"a": [numbered([16] * 700)]} | {f"r{k}": [numbered([16])] for k in range(300)}
    reader = packed(tmp_path, by_source, sequence_length=16)
    rare = np.array([reader.provenance(k)[0].source != "a" for k in range(len(reader))])
    assert np.abs(rare.reshape(-1, 40).mean(axis=1) - 0.3).max() < 0.2


def test_a_schedule_holds_within_a_window(tmp_path):
    by_source = {name: [numbered([160] * 60)] for name in "ab"}
    schedule = [(0, {"a": 1, "b": 0}), (0.5, {"a": 1, "b": 0}), (0.99, {"a": 0, "b": 1})]
    mix = {"schedule": schedule, "change": "linear", "total_tokens": 10_000}
    reader = packed(tmp_path, by_source, mix, sequence_length=16)
    request = Mixture.open(tmp_path / "mixture").request()
    tokens = np.cumsum([reader[k].num_tokens for k in range(len(reader))])
    given = np.cumsum(
        [sum(p.length for p in reader.provenance(k) if p.source == "b") for k in range(len(reader))]
    )
    off = given - np.array([request.at(float(at))[1] for at in tokens])
    assert np.abs(off).max() < 160  # one document
    assert not given[: len(reader) // 2 - 10].any()


def test_the_order_depends_on_the_seed_and_not_on_shards(tmp_path):
    corpus = encoded_corpus(tmp_path / "corpus", {"a": [numbered([40] * 30)], "b": [numbered([3] * 200)]})
    mixture = mix_corpus(corpus, tmp_path)

    def read(name, **params):
        out = tmp_path / name
        out.mkdir()
        packed = pack_mixture(corpus, mixture, out, sequence_length=16, shuffle_window=40, **params)[1]
        return [sequence.input_ids.tolist() for sequence in PackedReader.open(packed)]

    one = read("one")
    assert read("many", sequences_per_shard=7) == one
    other = read("other", shuffle_seed=1)
    assert other != one
    assert sorted(other[:40]) == sorted(one[:40])


def test_a_document_that_fills_a_window_is_warned_of_with_a_window_that_is_enough(tmp_path, caplog):
    documents = {"a": [numbered([16 * 30, *[16] * 270])]}
    for window in (64, 240):
        packed(tmp_path / str(window), documents, sequence_length=16, shuffle_window=window)
    (record,) = caplog.records
    assert "480 tokens is 30 sequences long, and shuffle_window=64" in record.message
    assert record.message.endswith("e.g. 240")


def test_a_curriculum_holds_between_windows(tmp_path):
    mix = {"curriculum": {"difficulty": "length", "order": "easy_to_hard"}}
    reader = packed(tmp_path, {"a": [numbered(range(1, 200))]}, mix, sequence_length=16)
    window = reader.manifest.shuffle_window
    assert window == len(reader) // 32
    documents = [[piece.document for piece in reader.provenance(k)] for k in range(len(reader))]
    windows = [documents[first : first + window] for first in range(0, len(reader) - 2 * window, window)]
    hardest = [max(map(max, part)) for part in windows]
    easiest = [min(map(min, part)) for part in windows]
    assert all(last <= first for last, first in zip(hardest[:-1], easiest[1:], strict=True))
    assert documents != sorted(documents)
