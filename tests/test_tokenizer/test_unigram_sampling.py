"""The best few segmentations and random ones, against all that there are."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tests.test_tokenizer.test_unigram import made, strings
from tokmill import tokenizer
from tokmill.tokenizer import TokenizerError
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.model import n_best, sample_batch

PIECES = {b"a": -2.0, b"b": -1.5, b"c": -2.5, b"ab": -2.2, b"bc": -3.0, b"abc": -4.5}


def spelled(tok: tokenizer.Tokenizer, ids: object) -> list[bytes]:
    """The pieces of ids."""
    return [tok.token_bytes(int(i)) for i in ids]


@given(
    scores=st.dictionaries(strings(3), st.floats(-9, -1), min_size=1, max_size=9),
    word=strings(7),
    k=st.integers(1, 6),
)
def test_the_best_few_are_those_of_all(scores: dict[bytes, float], word: bytes, k: int) -> None:
    known = scores | {letter: -3.0 for letter in slow.characters(word) if letter not in scores}
    tok = made(known)
    found = n_best(tok.definition, word, k)
    expected = slow.best_cuts(word, known, k)

    assert [score for _, score in found] == pytest.approx([slow.total(cut, known) for cut in expected])
    assert [slow.total(spelled(tok, ids), known) for ids, _ in found] == [score for _, score in found]
    assert len({tuple(ids) for ids, _ in found}) == len(expected)
    assert found[0][0] == tok.encode_batch([word])[0].tolist()


def test_pretokens_and_unknown_characters_are_kept_apart() -> None:
    tok = made(PIECES, r"\S+|\s")

    found = n_best(tok.definition, "xyab cx", 3)
    assert spelled(tok, found[0][0])[1:] == [b"ab", b"[UNK]", b"c", b"[UNK]"]
    assert [len(ids) for ids, _ in found] == [5, 6]
    assert n_best(tok.definition, "", 3) == [([], 0.0)]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_draws_are_as_frequent_as_they_are_probable(alpha: float) -> None:
    tok, number = made(PIECES), 4000
    drawn = Counter(
        tuple(spelled(tok, sample_batch(tok.definition, [b"abcab"], alpha=alpha, seed=seed).ids))
        for seed in range(number)
    )

    for cut, chance in slow.chances(b"abcab", PIECES, alpha):
        assert drawn[tuple(cut)] == pytest.approx(number * chance, abs=5 * math.sqrt(number * chance) + 1)


def test_a_large_alpha_draws_the_encoding() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, family="unigram", vocab_size=90)
    texts = [*TRAINING_TEXTS, "", "unknown \U000f0000\U000f0001 text"]

    drawn = sample_batch(tok.definition, texts, alpha=1e5)
    assert drawn.to_lists()[-1] == tok.encode(texts[-1])
    assert tok.decode_batch(sample_batch(tok.definition, texts[:-1], alpha=0.1)) == texts[:-1]


def test_batches_change_no_draw_and_seeds_do() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, family="unigram", vocab_size=90)
    together = sample_batch(tok.definition, TRAINING_TEXTS, alpha=0.2, seed=7).to_lists()

    alone = [sample_batch(tok.definition, [text], alpha=0.2, seed=7).to_lists()[0] for text in TRAINING_TEXTS]
    assert together == alone
    assert together != sample_batch(tok.definition, TRAINING_TEXTS, alpha=0.2, seed=8).to_lists()
    assert not np.array_equal(together[0], tok.encode(TRAINING_TEXTS[0]))


def test_what_cannot_be_drawn_is_refused() -> None:
    tok, other = made(PIECES), tokenizer.train(["a b"], family="word_level", vocab_size=3)

    for alpha in (-1.0, math.nan, math.inf, 1e9):
        with pytest.raises(TokenizerError, match="alpha"):
            sample_batch(tok.definition, ["a"], alpha=alpha)
    with pytest.raises(TokenizerError, match="seed=-1"):
        sample_batch(tok.definition, ["a"], alpha=1, seed=-1)
    with pytest.raises(TokenizerError, match="k=0"):
        n_best(tok.definition, "a", 0)
    with pytest.raises(TokenizerError, match="this is word_level"):
        sample_batch(other.definition, ["a"], alpha=1)
