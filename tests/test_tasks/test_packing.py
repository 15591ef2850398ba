"""Packing plans and fill in the middle: conservation, and what the accounts say."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.test_tasks.fabricated import encoded_corpus, made, mix_corpus, numbered, packed_by, packed_corpus
from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.core.stage import NO_SOURCE
from tokmill.tasks.fim.rearrangement import PSM, SPM
from tokmill.tasks.formats.mixture import MixedSource
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.packing.accounts import PackedTotals
from tokmill.tasks.packing.stage import PACK_PLAN, PackParams


def accounts_of(lengths, pieces, capacity, drops_long=False):
    totals = PackedTotals(1, capacity, drops_long)
    totals.add(np.zeros(len(lengths), dtype=np.uint16), np.array(lengths), pieces)
    mixed = MixedSource.model_construct(source="a", drawn_documents=len(lengths), drawn_tokens=sum(lengths))
    return totals.accounts([mixed], pieces.num_sequences * capacity - pieces.num_tokens)


def became(accounts):
    return [{end: amount for end, amount in account.became.items() if amount} for account in accounts]


def test_the_accounts_by_hand():
    lengths = [2, 11, 3]
    truncated = packed_by("greedy", lengths, 5, "truncate")
    *both, padding = accounts_of(lengths, truncated, 5)
    assert became(both) == [{"packed": 2, "truncated": 1}, {"packed": 10, "truncated": 6}]
    whole = {"padding": 5}
    assert (padding.source, padding.num_in, padding.added, padding.became) == (NO_SOURCE, 0, whole, whole)
    dropped = packed_by("greedy", lengths, 5, "drop")
    assert became(accounts_of(lengths, dropped, 5, drops_long=True))[:2] == [
        {"packed": 2, "dropped:too_long": 1},
        {"packed": 5, "dropped:too_long": 11},
    ]
    whole = packed_by("concat", lengths, 5)
    assert became(accounts_of(lengths, whole, 5))[:2] == [{"packed": 1, "split": 2}, {"packed": 16}]
    # |aabbb|bbbbb|bbbcc|c....| without its last sequence: the third document lost one token
    assert became(accounts_of(lengths, whole.only(whole.sequence < 3), 5))[:2] == [
        {"packed": 1, "split": 1, "truncated": 1},
        {"packed": 15, "truncated": 1},
    ]
    twice = packed_by("concat", [4, 4], 8)
    twice.document[:] = 0
    assert not all(account.balanced for account in accounts_of([4, 4], twice, 8))


def packing_plan(tmp_path, documents, **params):
    corpus = encoded_corpus(tmp_path / "corpus", documents, end_id=0)
    mixture = mix_corpus(corpus, tmp_path)
    out = tmp_path / "plan"
    outcome = made(PACK_PLAN, PackParams(**params).plan_params(), out, mixture=mixture, **corpus.inputs)
    return outcome, PackingPlan.open(out)


def test_the_plan_is_cut_into_shards(tmp_path):
    documents = {"a": [numbered([10] * 5)], "b": [numbered([10] * 5)]}
    outcome, plan = packing_plan(tmp_path, documents, sequence_length=8, sequences_per_shard=5)
    metrics = outcome.metrics
    assert [metrics[f"num_{what}"] for what in ("sequences", "tokens", "padding_tokens")] == [13, 100, 4]
    assert [metrics[f"num_{what}_documents"] for what in ("split", "cut")] == [10, 0]
    shards = plan.manifest.shards
    bounds = [(shard.first_sequence, shard.num_sequences, shard.num_tokens) for shard in shards]
    assert bounds == [(0, 5, 40), (5, 5, 40), (10, 3, 20)]
    for shard in shards:
        pieces = plan.pieces(shard.index)
        assert len(pieces) == shard.num_pieces
        assert sorted({*pieces.sequence.tolist()}) == [*shard.entry.sequences]
    with pytest.raises(StoreError, match="no shard 3; the plan has shards 0 to 2"):
        plan.pieces(3)


def test_the_last_sequence_may_be_dropped(tmp_path):
    outcome, _ = packing_plan(tmp_path, {"a": [numbered([10, 10])]}, sequence_length=8, last_sequence="drop")
    assert (outcome.metrics["num_sequences"], outcome.metrics["num_padding_tokens"]) == (2, 0)
    tokens = next(account for account in outcome.accounts if account.unit == "tokens")
    assert tokens.became["packed"] == 16
    assert tokens.became["truncated"] == 4


@pytest.mark.parametrize(
    "params",
    [
        {"sequence_length": 7},
        {"sequence_length": 1 << 31},
        {"strategy": "best"},
        {"formats": []},
        {"formats": ["pickle"]},
        {"strategy": "best_fit", "sequence_length": (1 << 24) + 1},
        {"window": 0},
        {"fim_rate": 1.5, "strategy": "best_fit", "fim_token_ids": [1, 2, 3]},
        {"fim_rate": {"code": -0.1}, "strategy": "best_fit", "fim_token_ids": [1, 2, 3]},
        {"fim_rate": 0.5, "strategy": "concat", "fim_token_ids": [1, 2, 3]},
        {"fim_rate": 0.5, "strategy": "best_fit"},
        {"fim_rate": 0.5, "strategy": "best_fit", "fim_token_ids": [1, 2, 2]},
        {"pad_id": -1},
        {"sequences_per_shard": 0},
    ],
)
def test_parameters_that_make_no_sense_are_refused(params):
    with pytest.raises(ValidationError):
        PackParams(**params)


PREFIX, SUFFIX, MIDDLE, END = 251, 252, 253, 254
WHOLE = {"strategy": "best_fit", "fim_token_ids": (PREFIX, SUFFIX, MIDDLE)}


def packed(folder, lengths, sequence_length=64, **params):
    documents = {"code": [numbered(lengths, vocab_size=250)], "prose": [numbered(lengths, 7, vocab_size=250)]}
    params = WHOLE | {"sequence_length": sequence_length} | params
    corpus, outcome, path = packed_corpus(folder, documents, end_id=END, **params)
    return corpus, outcome, PackedReader.open(path)


def put_back(tokens, form):
    """A rearranged piece's tokens in the document's order."""
    tail = tokens[-1:] if tokens[-1] == END else []
    text = tokens[: len(tokens) - len(tail)]
    assert (text[0], text.count(PREFIX), text.count(SUFFIX), text.count(MIDDLE)) == (PREFIX, 1, 1, 1)
    suffix, middle = text.index(SUFFIX), text.index(MIDDLE)
    if form == PSM:
        return text[1:suffix] + text[middle + 1 :] + text[suffix + 1 : middle] + tail
    assert suffix == 1
    return text[middle + 1 :] + text[2:middle] + tail


def pieces_of(reader):
    for index in range(len(reader)):
        tokens = reader[index].input_ids.tolist()
        for piece in reader.provenance(index):
            yield piece, tokens[piece.start : piece.start + piece.length]


def assert_nothing_is_lost(corpus, reader):
    seen = {}
    for piece, tokens in pieces_of(reader):
        text = put_back(tokens, piece.fim) if piece.fim else tokens
        assert len(text) == piece.num_document_tokens
        place = (piece.source, piece.shard, piece.document)
        seen.setdefault(place, {}).update(enumerate(text, start=piece.document_start))
    for (source, shard, document), found in seen.items():
        wanted = corpus.tokens(source, shard, document)
        assert [found[k] for k in range(len(wanted))] == wanted
    return seen


EDGES = [1, 5, 16, 20, 40, 61, 62, 63, 64, 65, 200, 130]


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    sequence_length=st.integers(8, 40),
    strategy=st.sampled_from(["greedy", "best_fit", "first_fit_decreasing", "pad"]),
    fim_spm_rate=st.sampled_from([0.0, 0.5, 1.0]),
    fim_seed=st.integers(0, 1000),
)
@example(EDGES, 64, "greedy", 0.5, 0)
@example(EDGES, 64, "best_fit", 0.0, 0)
@example(EDGES, 64, "pad", 1.0, 0)
def test_every_token_is_there(tmp_path_factory, lengths, sequence_length, strategy, fim_spm_rate, fim_seed):
    folder = tmp_path_factory.mktemp("fim")
    params = {"strategy": strategy, "fim_rate": 0.7, "fim_spm_rate": fim_spm_rate, "fim_seed": fim_seed}
    corpus, outcome, reader = packed(folder, lengths, sequence_length, **params)
    assert len(assert_nothing_is_lost(corpus, reader)) == 2 * len(lengths)
    forms = {piece.fim for piece, _ in pieces_of(reader)}
    allowed = {0, *([PSM] if fim_spm_rate < 1 else []), *([SPM] if fim_spm_rate else [])}
    assert forms == allowed if lengths == EDGES else forms <= allowed
    assert outcome.metrics["num_cut_documents"] == 0  # what just fits is not rearranged
    added = sum(account.added.get("fill_in_the_middle", 0) for account in outcome.accounts)
    assert added == 3 * sum(piece.fim > 0 for piece, _ in pieces_of(reader))


def test_a_rate_is_by_source(tmp_path):
    _, outcome, reader = packed(tmp_path, [30] * 20, fim_rate={"code": 1.0})
    rearranged = {(piece.source, piece.fim > 0) for piece, _ in pieces_of(reader)}
    assert rearranged == {("code", True), ("prose", False)}
    added = {account.source: dict(account.added) for account in outcome.accounts if account.unit == "tokens"}
    assert added == {"code": {"fill_in_the_middle": 60}, "prose": {}, "*": added["*"]}


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path):
    with pytest.raises(PackingError, match=r"fim_token_ids has 256, which must be below vocab_size=256"):
        packed(tmp_path, [30], fim_rate=1.0, fim_token_ids=(1, 2, 256))
