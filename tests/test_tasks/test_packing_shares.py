"""Shares of the packed sequences: they hold all along the way, for every strategy, and are measured."""

import json
import logging
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tests.test_tasks.packed_lengths import packed_by
from tokmill.tasks.formats.mixture import MixedSource
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.packing.lining_up import LONGEST_WAIT, LOOK_AHEAD
from tokmill.tasks.packing.shares import LIMIT, Shares, warnings

STRATEGIES = ["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]
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


@pytest.mark.parametrize("documents", [CONSTANT, CHANGING], ids=["constant", "changing"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_shares_hold_in_every_block_of_sequences(strategy, documents):
    sources, lengths = documents
    pieces = packed_by(strategy, lengths, CAPACITY, sources=sources)
    packed, planned = shares_by_block(pieces, sources, max(sources) + 1)
    assert len(packed) > 20
    # Half a sequence more or less of a block's 64 are 0.8 points; no more than two of them are off.
    assert np.abs(np.array(packed) - planned).max() < 2 / BLOCK


def mixed(name, share):
    amounts = dict.fromkeys(
        (name for name in MixedSource.model_fields if MixedSource.model_fields[name].annotation is int), 1
    )
    rest = dict.fromkeys(
        ("requested_share", "epochs", "max_repetition", "min_epochs", "most_ahead_tokens"), 1.0
    )
    return MixedSource(source=name, share=share, limits=False, most_behind_tokens=0.0, **amounts | rest)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sizes", [None, [700, 300, 900]])
def test_what_is_measured_is_what_there_is(monkeypatch, strategy, sizes):
    monkeypatch.setattr("tokmill.tasks.packing.shares._BLOCK_TOKENS", 1)
    sources, lengths = ([*column[:2000]] for column in CONSTANT)
    sizes = [*(sizes or []), 2000 - sum(sizes or [])]
    measured, start = Shares(3, CAPACITY, 0), 0
    assert measured.block_sequences == BLOCK
    whole = packed_by(strategy, lengths, CAPACITY, sizes=sizes, sources=sources)
    for size in sizes:
        mine = whole.only((whole.document >= start) & (whole.document < start + size))
        mine.document[:] -= start
        measured.add(np.array(sources[start : start + size], dtype=np.uint16), mine)
        start += size
    found = measured.measured([mixed(name, 0.25) for name in "abc"])
    packed, planned = shares_by_block(whole, sources, 3)
    off = np.abs(np.array(packed) - planned).max(axis=0)
    assert [share.deviation for share in found] == pytest.approx(off.tolist(), abs=1e-6)
    total = np.bincount(np.array(sources)[whole.document], weights=whole.length) / whole.num_tokens
    assert [share.packed_share for share in found] == pytest.approx(total.tolist(), abs=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 70)), min_size=1, max_size=60),
    st.sampled_from(["best_fit", "first_fit_decreasing"]),
)
def test_every_sequence_has_one_place_whatever_the_sources(documents, strategy):
    sources, lengths = zip(*documents, strict=True)
    one = packed_by(strategy, lengths, 20)
    several = packed_by(strategy, lengths, 20, sources=sources)
    assert several.num_sequences == one.num_sequences
    as_sets = [
        sorted(tuple(pieces.document[pieces.sequence == k].tolist()) for k in range(pieces.num_sequences))
        for pieces in (one, several)
    ]
    assert as_sets[0] == as_sets[1]


def test_no_sequence_waits_for_ever():
    # One source's sequences are never what the shares want next; yet each comes within the longest wait.
    num_documents = 3 * LONGEST_WAIT
    lengths = [10] * num_documents
    sources = [1] + [0] * (num_documents - 1)
    pieces = packed_by("best_fit", lengths, 10, sources=sources)
    moved = np.abs(pieces.sequence - pieces.document)
    assert moved.max() <= LONGEST_WAIT + LOOK_AHEAD


def packed_artifact(folder, sources, lengths, **params):
    by_source = {
        name: [numbered([length for of, length in zip(sources, lengths, strict=True) if of == k])]
        for k, name in enumerate("abc"[: max(sources) + 1])
    }
    corpus = encoded_corpus(folder / "corpus", by_source)
    outcome, path = pack_mixture(corpus, mix_corpus(corpus, folder), folder, **params)
    return outcome, PackedReader.open(path)


def test_record_and_manifest_say_the_deviation(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("tokmill.tasks.packing.shares._BLOCK_TOKENS", 1)
    sources, lengths = ([*column[:3000]] for column in CONSTANT)
    outcome, reader = packed_artifact(
        tmp_path, sources, lengths, sequence_length=CAPACITY, strategy="best_fit"
    )
    said = reader.manifest
    assert [share.source for share in said.shares] == ["a", "b", "c"]
    assert outcome.metrics["share_deviation"] == said.share_deviation
    assert 0 < said.share_deviation < LIMIT
    assert said.share_block_sequences == BLOCK
    assert json.loads((tmp_path / "packed" / "packed.json").read_text())["shares"][0]["mixed_share"] > 0
    assert not caplog.records


def test_dropping_long_documents_is_warned_of(tmp_path, caplog):
    sources, lengths = ([*column[:1000]] for column in CONSTANT)
    with caplog.at_level(logging.WARNING):
        packed_artifact(
            tmp_path,
            sources,
            lengths,
            sequence_length=CAPACITY,
            strategy="best_fit",
            long_documents="drop",
        )
    (record,) = caplog.records
    assert "source 'c' has" in record.message
    assert "long_documents='split'" in record.message


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
