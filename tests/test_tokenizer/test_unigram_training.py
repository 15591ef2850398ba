"""Training Unigram: seeds, expectations and losses are the slow model's, and laws of what is learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.family import UnigramTrainer
from tokmill.tokenizer.unigram.seeding import SeedRules, Seeds, TrainingText, find_seeds, prepare


def text_of(counts: dict[bytes, int], coverage: float = 1.0) -> TrainingText:
    return prepare(PretokenCounts.from_dict(counts), 1, coverage, ())


def trainer_of(counts: dict[bytes, int], scores: dict[bytes, float]) -> UnigramTrainer:
    """A trainer whose pieces have these scores, in order of their bytes."""
    strings = sorted(scores)
    single = np.array([len(slow.characters(string)) == 1 for string in strings])
    trainer = UnigramTrainer(text_of(counts), Seeds(strings, np.ones(len(strings)), single))
    trainer.scores[:] = [scores[string] for string in strings]
    return trainer


COUNTS = st.dictionaries(
    st.text(alphabet="abé天", min_size=1, max_size=9).map(str.encode),
    st.integers(1, 6),
    min_size=1,
    max_size=9,
)


@given(counts=COUNTS, number=st.integers(0, 30), longest=st.integers(1, 5))
def test_seeds_are_the_best_substrings(counts, number, longest):
    found = find_seeds(text_of(counts), SeedRules("substrings", number, 1, longest, 1000))

    assert dict(zip(found.strings, found.scores.tolist(), strict=True)) == slow.seeds(counts, number, longest)


@given(counts=COUNTS, chances=st.lists(st.floats(-8, -0.5), min_size=40, max_size=40))
def test_expected_counts_are_those_of_all_segmentations(counts, chances):
    pieces = sorted(slow.seeds(counts, 20))
    scores = dict(zip(pieces, chances, strict=False))
    expected, likelihood = slow.expected(counts, scores)
    trainer = trainer_of(counts, scores)
    trainer._improve()

    single = [len(slow.characters(piece)) == 1 for piece in pieces]
    kept = {p: max(expected[p], 0.5) if one else expected[p] for p, one in zip(pieces, single, strict=True)}
    total = sum(n for n in kept.values() if n >= 0.5)
    assert trainer.likelihood == pytest.approx(likelihood)
    for piece, score in zip(pieces, trainer.scores, strict=True):
        if abs(kept[piece] - 0.5) > 1e-9 or (piece in scores and kept[piece] == 0.5):
            wanted = digamma(kept[piece]) - digamma(total) if kept[piece] >= 0.5 else -math.inf
            assert score == pytest.approx(wanted, abs=1e-5)  # scores are rounded


def digamma(x: float) -> float:
    """The derivative of the logarithm of gamma, numerically."""
    step = 1e-5
    return (math.lgamma(x + step) - math.lgamma(x - step)) / (2 * step)


@given(counts=COUNTS, chances=st.lists(st.floats(-8, -0.5), min_size=40, max_size=40))
def test_losses_are_those_of_the_best_other_segmentation(counts, chances):
    scores = dict(zip(sorted(slow.seeds(counts, 20)), chances, strict=False))
    trainer, frequencies = trainer_of(counts, scores), np.zeros(len(scores))
    for word, count in counts.items():
        for piece in slow.best(word, scores):
            frequencies[sorted(scores).index(piece)] += count

    found = trainer._losses(frequencies)

    wanted = [slow.losses(counts, scores)[piece] for piece in sorted(scores)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5 * max(1.0, float(frequencies.max())))


def test_long_and_short_pretokens_are_expected_alike():
    word, scores = b"ab" * 400, {b"a": -2.0, b"b": -1.5, b"ab": -2.5, b"ba": -3.0}
    trainer = trainer_of({word: 3}, scores)
    ways = [0.0] + [-math.inf] * len(word)
    for end in range(1, len(word) + 1):
        steps = [(word[end - n : end], ways[end - n]) for n in (1, 2) if n <= end]
        ways[end] = np.logaddexp.reduce([way + scores[piece] for piece, way in steps if piece in scores])
    trainer._improve()

    assert trainer.likelihood == pytest.approx(3 * ways[-1])


def test_rare_characters_may_stay_unknown():
    counts = {b"abab": 50, b"ab\xe5\xa4\xa9ab": 1, b"ba": 9}
    tok = tokenizer.train_from_counts(counts, vocab_size=4, family="unigram", character_coverage=0.99)

    assert "天".encode() not in tok.vocab
    assert tok.encode("天") == [0]


@pytest.mark.parametrize("seed", ["substrings", "words"])
def test_pieces_are_no_longer_than_asked(seed):
    counts = {b"\xff\xfe\xff\xfe": 90, b"\xff\xfe": 9, "天地".encode(): 50, b"ab": 5}
    tok = tokenizer.train_from_counts(counts, vocab_size=8, family="unigram", seed=seed, max_token_bytes=2)

    pieces = [token for token in tok.vocab if token != b"[UNK]"]
    assert {b"\xff\xfe", "天".encode()} <= set(pieces)
    assert all(len(piece) <= 2 or len(slow.characters(piece)) == 1 for piece in pieces)
