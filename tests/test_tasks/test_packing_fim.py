"""Fill in the middle: nothing of a document is lost or moved by accident, and the seed decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.tokens import PSM, SPM, DocumentKeys, choose_forms
from tokmill.tasks.formats.packed.reader import PackedReader

PREFIX, SUFFIX, MIDDLE, END = 251, 252, 253, 254
WHOLE = {"strategy": "best_fit", "fim_token_ids": (PREFIX, SUFFIX, MIDDLE)}


def packed(folder, lengths, sequence_length=64, **params):
    documents = {"code": [numbered(lengths, vocab_size=250)], "prose": [numbered(lengths, 7, vocab_size=250)]}
    corpus = encoded_corpus(folder / "corpus", documents, end_id=END)
    outcome, path = pack_mixture(
        corpus, mix_corpus(corpus, folder), folder, **(WHOLE | {"sequence_length": sequence_length} | params)
    )
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


@pytest.mark.parametrize("spm_rate", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit_decreasing", "pad"])
def test_every_token_is_there(tmp_path, spm_rate, strategy):
    lengths = [1, 5, 16, 20, 40, 61, 62, 63, 64, 65, 200, 130]
    corpus, _, reader = packed(tmp_path, lengths, strategy=strategy, fim_rate=1.0, fim_spm_rate=spm_rate)
    assert len(assert_nothing_is_lost(corpus, reader)) == 2 * len(lengths)
    forms = {piece.fim for piece, _ in pieces_of(reader)}
    assert forms == {0.0: {0, PSM}, 1.0: {0, SPM}, 0.5: {0, PSM, SPM}}[spm_rate]


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    sequence_length=st.integers(8, 40),
    seed=st.integers(0, 1000),
)
def test_every_token_is_there_whatever_the_lengths(tmp_path_factory, lengths, sequence_length, seed):
    folder = tmp_path_factory.mktemp("fim")
    corpus, outcome, reader = packed(folder, lengths, sequence_length, fim_rate=0.7, fim_seed=seed)
    assert len(assert_nothing_is_lost(corpus, reader)) == 2 * len(lengths)
    added = sum(account.added.get("fill_in_the_middle", 0) for account in outcome.accounts)
    assert added == 3 * sum(piece.fim > 0 for piece, _ in pieces_of(reader))


def test_a_rate_is_by_source(tmp_path):
    _, outcome, reader = packed(tmp_path, [30] * 20, fim_rate={"code": 1.0})
    assert {(piece.source, piece.fim > 0) for piece, _ in pieces_of(reader)} == {
        ("code", True),
        ("prose", False),
    }
    added = {account.source: dict(account.added) for account in outcome.accounts if account.unit == "tokens"}
    assert added == {"code": {"fill_in_the_middle": 60}, "prose": {}, "*": added["*"]}


def keys(number):
    numbers = np.arange(number, dtype=np.uint32)
    same = np.zeros(number, dtype=np.uint16)
    return DocumentKeys(same, np.zeros(number, dtype=np.uint32), numbers, same)


def test_the_rates_are_met_and_the_seed_decides():
    forms = choose_forms(keys(100_000), np.array([0.3]), 0.25, seed=1)
    shares = np.bincount(forms, minlength=3) / len(forms)
    assert np.allclose(shares, [0.7, 0.225, 0.075], atol=0.005)
    again, other = (choose_forms(keys(100_000), np.array([0.3]), 0.25, seed=seed) for seed in (1, 2))
    assert (again == forms).all()
    assert 0.3 < (other != forms).mean() < 0.6


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path):
    with pytest.raises(PackingError, match=r"fim_token_ids has 256, which must be below vocab_size=256"):
        packed(tmp_path, [30], fim_rate=1.0, fim_token_ids=(1, 2, 256))
